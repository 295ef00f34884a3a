package kubernetes

import (
	"path/filepath"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/inmem"
	_ "github.com/ashlar-dev/storage/sqlite"
)

// engine is a database for the tests.
type engine struct {
	name string
	// prepare is called once for each test function. It returns a function that creates an empty store. In an untouched store revisions
	// begin at 1; otherwise they may be higher.
	prepare func(t testing.TB) func(t testing.TB, untouched bool) storage.Backend
	// alone marks an engine whose stores share the revisions of one server, so that tests run one after the other.
	alone bool
	// notCached are tests that cannot hold for a cache in front of this database, with reasons.
	notCached map[string]string
}

// engines is extended by the files of databases that need a server.
var engines = []engine{
	{name: "memory", prepare: each(func(testing.TB) storage.Backend { return inmem.New(nil) })},
	{name: "sqlite", prepare: each(func(t testing.TB) storage.Backend {
		return open(t, "sqlite://"+filepath.Join(t.TempDir(), "kube.db"))
	})},
}

// each returns the prepare function of an engine whose stores are all untouched.
func each(open func(t testing.TB) storage.Backend) func(testing.TB) func(testing.TB, bool) storage.Backend {
	return func(testing.TB) func(testing.TB, bool) storage.Backend {
		return func(t testing.TB, _ bool) storage.Backend { return open(t) }
	}
}

func open(t testing.TB, url string) storage.Backend {
	t.Helper()
	b, err := storage.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
