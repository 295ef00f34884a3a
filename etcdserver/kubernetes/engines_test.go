package kubernetes

import (
	"path/filepath"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/inmem"
	_ "github.com/ashlar-dev/storage/sqlite"
)

// engine is a database that the tests run on.
type engine struct {
	name string
	// prepare is called once for each test function, and returns what makes a new, empty store. Revisions begin with 1 in one that is
	// untouched, and otherwise may have come far.
	prepare func(t testing.TB) func(t testing.TB, untouched bool) storage.Backend
	// alone: revisions are those of a server that all its stores share, so that tests run one after the other.
	alone bool
	// notCached are tests that cannot hold for a cache before this database, and why.
	notCached map[string]string
}

// engines are completed by the files of the databases that need a server.
var engines = []engine{
	{name: "memory", prepare: each(func(testing.TB) storage.Backend { return inmem.New(nil) })},
	{name: "sqlite", prepare: each(func(t testing.TB) storage.Backend {
		return open(t, "sqlite://"+filepath.Join(t.TempDir(), "kube.db"))
	})},
}

// each is the prepare of an engine whose stores are all untouched.
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
