package cache_test

import (
	"regexp"
	"testing"

	"github.com/ashlar-dev/storage/conformance"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/internal/test/stores"
)

func TestMain(m *testing.M) { stores.Main(m) }

// The topics whose calls the copy answers or observes. Other calls pass through to the backend, in the same way over every backend, so they are tested
// over memory only. The copy depends on a database only by the capabilities of its watches. The watches of SQLite, Postgres and etcd have the same.
var (
	copyTopics = regexp.MustCompile(`^(Lists|Commit|Histories|Closing|Load)/`)
	loadTopic  = regexp.MustCompile(`^Load/Clients$`)
)

func TestConformance(t *testing.T) {
	for name, h := range stores.All {
		t.Run(name, func(t *testing.T) {
			inner := h.URL
			h.URL = func(t testing.TB) string { return "cached-" + inner(t) }
			h.NoMover = "tools move the inner store"
			h.Timeout = fixture.Timeout        // a case gets five times as long
			h.Backup, h.Processes = nil, false // the tests of faults kill processes
			if name == "Memory" {
				conformance.Run(t, h)
				return
			}
			topics := copyTopics
			if name == "Postgres" || name == "Etcd" {
				topics = loadTopic
			}
			report, err := conformance.Check(t.Context(), h, conformance.Options{Run: topics})
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range report.Results {
				if r.Failure != "" {
					t.Errorf("%s: %s\n%s", r.Case, r.Failure, r.Log)
				}
			}
		})
	}
}
