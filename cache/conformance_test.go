package cache_test

import (
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/cache"
	"github.com/ashlar-dev/storage/conformance"
	_ "github.com/ashlar-dev/storage/inmem"
	_ "github.com/ashlar-dev/storage/sqlite"
)

// layered returns a harness for caches over the stores whose URLs a function returns.
func layered(storeURL func(t testing.TB) string) conformance.Harness {
	var stores sync.Map // the URL of each cache
	open := func(t testing.TB, u string) storage.Backend {
		backend, err := storage.Open(t.Context(), u)
		if err != nil {
			t.Fatal(err)
		}
		cached, err := cache.New(t.Context(), backend, nil)
		if err != nil {
			t.Fatal(err)
		}
		stores.Store(cached, u)
		return cached
	}
	return conformance.Harness{
		NoMover: "tools move the inner store",
		Open:    func(t testing.TB) storage.Backend { return open(t, storeURL(t)) },
		Another: func(t testing.TB, b storage.Backend) storage.Backend {
			u, _ := stores.Load(b)
			return open(t, u.(string))
		},
	}
}

// copyTopics matches the cases of topics whose calls the copy answers or observes. Other calls pass through to the backend, in the same way over
// every backend, so they are tested over memory only.
var copyTopics = regexp.MustCompile(`^(Lists|Commit|Histories|Closing|Load)/`)

// runCopyTopics runs the cases of copyTopics. Do not call it from a parallel test, because other tests search for leaked goroutines.
func runCopyTopics(t *testing.T, h conformance.Harness) {
	t.Helper()
	report, err := conformance.Check(t.Context(), h, conformance.Options{Run: copyTopics})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range report.Results {
		if r.Failure != "" {
			t.Errorf("%s: %s\n%s", r.Case, r.Failure, r.Log)
		}
	}
}

var memories atomic.Int64

func TestConformanceOverMemory(t *testing.T) {
	conformance.Run(t, layered(func(testing.TB) string { return fmt.Sprintf("mem://cache-%d", memories.Add(1)) }))
}

func TestConformanceOverSQLite(t *testing.T) {
	runCopyTopics(t, layered(func(t testing.TB) string {
		return (&url.URL{Scheme: "sqlite", Path: filepath.Join(t.TempDir(), "store.db")}).String()
	}))
}
