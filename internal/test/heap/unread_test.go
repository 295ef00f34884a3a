//go:build integration

package heap

import (
	"fmt"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	_ "github.com/ashlar-dev/storage/postgres"
	_ "github.com/ashlar-dev/storage/sqlite"
)

// TestUnreadWatches opens watches over 6 MiB of resources and does not read them. Each holds a small part of its snapshot. The test is not
// parallel, because it measures the heap of the process.
func TestUnreadWatches(t *testing.T) {
	const (
		watches   = 60
		resources = 1000
		most      = 32 << 20 // the maximum growth of the heap
	)
	for name, url := range map[string]func() string{
		"SQLite":   func() string { return "sqlite:" + filepath.ToSlash(filepath.Join(t.TempDir(), "unread.db")) },
		"Postgres": func() string { return env.Postgres(t).StoreURL(t) },
	} {
		t.Run(name, func(t *testing.T) {
			b := fixture.Open(t, url())
			var calls sync.WaitGroup
			for i := range resources {
				res := fixture.Resource(fmt.Sprint(i), "")
				res.Data = &anypb.Any{TypeUrl: "example.com/Blob", Value: make([]byte, 6<<10)}
				calls.Go(func() {
					if _, err := b.WriteCAS(fixture.Context(t), res); err != nil {
						t.Error(err)
					}
				})
			}
			calls.Wait()
			before := heap()
			all := make([]storage.Watch, watches)
			for i := range all {
				all[i] = fixture.WatchAll(t, b)
			}
			grown := heap() - before
			t.Logf("the heap grew by %d MiB", grown>>20)
			if grown > most {
				t.Errorf("the heap grew by %d MiB, expected %d MiB at most", grown>>20, most>>20)
			}
			n := 0
			for fixture.Next(t, all[0]).GetEndOfSnapshot() == nil {
				n++
			}
			if n != resources {
				t.Errorf("the snapshot has %d resources, expected %d", n, resources)
			}
			runtime.KeepAlive(all)
		})
	}
}
