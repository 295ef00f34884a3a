package tablestest_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/ashlar-dev/storage"
	_ "github.com/ashlar-dev/storage/inmem"
	_ "github.com/ashlar-dev/storage/sqlite"
	"github.com/ashlar-dev/storage/typed/tables/tablestest"
)

// harnessAt returns a harness for the databases at the URLs that a function returns.
func harnessAt(url func(testing.TB) string) tablestest.Harness {
	return tablestest.Harness{Handles: func(t testing.TB) func(context.Context) (storage.Backend, error) {
		url := url(t)
		return func(ctx context.Context) (storage.Backend, error) { return storage.Open(ctx, url) }
	}}
}

// stores counts the stores in memory, which live as long as the process.
var stores atomic.Int64

func memory(testing.TB) string { return fmt.Sprint("mem://storetest-", stores.Add(1)) }

func TestMemory(t *testing.T) {
	t.Parallel()
	tablestest.Run(t, harnessAt(memory))
}

func TestSQLite(t *testing.T) {
	t.Parallel()
	tablestest.Run(t, harnessAt(func(t testing.TB) string { return "sqlite:" + filepath.Join(t.TempDir(), "store.db") }))
}
