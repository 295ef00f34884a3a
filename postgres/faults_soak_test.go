//go:build integration && soak

package postgres_test

import (
	"crypto/sha256"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/conformance"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// Tests that take too long for every run: make test-faults.

// TestFaultsSlowLinkMemory sends 200 resources of 1 MiB over links of 10 MiB/s, to an open watch and to a resumed one. The
// process's memory is bounded in bytes.
func TestFaultsSlowLinkMemory(t *testing.T) {
	const rate, size, count = 10 << 20, 1<<20 - 1000, 200
	const maxHeap = 96 << 20
	server := env.Postgres(t)
	schema := server.Schema(t)
	fast := fixture.Open(t, server.StoreURLIn(t, schema))
	slow, other := slowly(t, server, schema, rate), slowly(t, server, schema, rate)
	polls := fixture.WatchAll(t, slow)
	endOfSnapshot(t, polls)
	cursor := polls.Cursor()
	want := map[string][32]byte{}
	for i := range count {
		res := fixture.Write(t, fast, large(fmt.Sprint("large-", i), size))
		want[res.Version] = sha256.Sum256(res.Data.Value)
	}
	peak, stop := liveHeap()
	resumes := resume(t, other, cursor)
	var group sync.WaitGroup
	for name, w := range map[string]storage.Watch{"a watch that was open": polls, "a watch that resumes": resumes} {
		group.Go(func() {
			for seen := range count {
				event, err := w.Next(fixture.Context(t))
				if err != nil {
					t.Errorf("%s: after %d events: %v", name, seen, err)
					return
				}
				res := event.GetUpsert().GetResource()
				if sum, there := want[res.GetVersion()]; !there || sha256.Sum256(res.Data.Value) != sum {
					t.Errorf("%s: event %d is not the written resource: %v", name, seen, res.GetId())
					return
				}
			}
		})
	}
	group.Wait()
	stop()
	t.Logf("peak of live memory: %d MiB", peak()>>20)
	if peak() > maxHeap {
		t.Errorf("peak of live memory %d MiB, expected at most %d", peak()>>20, maxHeap>>20)
	}
}

// liveHeap measures the live memory after each collection, until stop is called.
func liveHeap() (peak func() uint64, stop func()) {
	var largest uint64
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(250 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-end:
				return
			}
			runtime.GC()
			var now runtime.MemStats
			runtime.ReadMemStats(&now)
			largest = max(largest, now.HeapAlloc)
		}
	}()
	return func() uint64 { return largest }, func() { close(end); <-ended }
}

// TestFaultsIsolation runs the conformance suite with another default isolation level.
func TestFaultsIsolation(t *testing.T) {
	for _, level := range []string{"repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			server := isolated(t, level)
			conformance.Run(t, conformance.Harness{URL: func(t testing.TB) string { return server.StoreURL(t) }})
		})
	}
}
