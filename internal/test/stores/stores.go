// Package stores has a conformance.Harness for each adapter. The suites of packages above the contract run on them. With the build tag
// integration, it has the database servers too.
package stores

import (
	"bytes"
	"fmt"
	"net/url"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/conformance"
	"github.com/ashlar-dev/storage/conformance/faults"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/internal/leaks"
	_ "github.com/ashlar-dev/storage/sqlite"
)

var memories atomic.Int64 // stores in memory, which live as long as the process

// Memory is the harness of package inmem.
var Memory = conformance.Harness{
	URL: func(testing.TB) string { return fmt.Sprint("mem://stores-", memories.Add(1)) },
	Backup: func(t testing.TB, b storage.Backend) func() storage.Backend {
		var saved bytes.Buffer
		if err := b.(*inmem.Backend).Snapshot(t.Context(), &saved); err != nil {
			t.Fatal(err)
		}
		return func() storage.Backend {
			if err := b.(*inmem.Backend).Restore(t.Context(), &saved); err != nil {
				t.Fatal(err)
			}
			return b
		}
	},
}

// SQLite is the harness of package sqlite.
var SQLite = conformance.Harness{
	URL: func(t testing.TB) string {
		return (&url.URL{Scheme: "sqlite", Path: filepath.Join(t.TempDir(), "store.db")}).String()
	},
	Processes: true,
}

// All has the harness of each adapter by its name.
var All = map[string]conformance.Harness{"Memory": Memory, "SQLite": SQLite}

var run = func(m *testing.M) { leaks.Main(m) }

// Main is the TestMain of a package whose tests use All. It fails if goroutines remain.
func Main(m *testing.M) {
	if !faults.ServeProcess() {
		run(m)
	}
}
