package bench

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
)

// fleet is several handles of one store, each with a watch, as several processes have. It measures the time from the acknowledgement of a
// write to its event in the watch of the first handle.
type fleet struct {
	members []*resourceSet

	mu           sync.Mutex
	acknowledged map[string]time.Time // by version
	seen         map[string]time.Time
}

// through opens a fleet of handles of the store for the resources of h, and returns it with a function that closes it.
func (h *resourceSet) through(b *testing.B, url string, handles int) (f *fleet, end func()) {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	f = &fleet{members: make([]*resourceSet, handles), acknowledged: map[string]time.Time{}, seen: map[string]time.Time{}}
	var running sync.WaitGroup
	for i := range f.members {
		backend := must(storage.Open(ctx, url))
		f.members[i] = &resourceSet{backend: backend, resources: h.resources, data: h.data}
		w := must(backend.WatchList(ctx, everything, anywhere, ""))
		running.Go(func() {
			defer w.Close()
			for {
				event, err := w.Next(ctx)
				if err != nil {
					if ctx.Err() == nil {
						b.Error(err)
					}
					return
				}
				if i == 0 {
					f.note(f.seen, event.GetUpsert().GetResource().GetVersion())
				}
			}
		})
	}
	return f, func() {
		cancel()
		running.Wait()
		for _, m := range f.members {
			if err := m.backend.Close(); err != nil {
				b.Error(err)
			}
		}
	}
}

func (f *fleet) note(at map[string]time.Time, version string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at[version] = time.Now()
}

// write replaces one of the caller's resources through the caller's handle.
func (f *fleet) write(caller, i int) error {
	m := f.members[caller%len(f.members)]
	err := m.write(caller, i)
	if err == nil {
		f.note(f.acknowledged, m.resources[caller][i%keysPerCaller].Version)
	}
	return err
}

// report prints the latency of the events.
func (f *fleet) report(what string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var latencies []time.Duration
	for version, at := range f.acknowledged {
		if seen, ok := f.seen[version]; ok {
			latencies = append(latencies, max(0, seen.Sub(at)))
		}
	}
	fmt.Printf("events %s: %d of %d writes, p50 %v, p99 %v after the acknowledgement\n",
		what, len(latencies), len(f.acknowledged), percentile(latencies, 50), percentile(latencies, 99))
}
