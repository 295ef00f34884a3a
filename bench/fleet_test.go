package bench

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
)

// fleet is several handles of one store, as several processes have, each with a watch if the writes are watched. It measures the time from
// the acknowledgement of a write to its event in the watch of the first handle.
type fleet struct {
	members []*resourceSet
	arrivals
	running sync.WaitGroup
	ends    func()
}

// through opens a fleet of handles of the store for the resources of h.
func (h *resourceSet) through(b *testing.B, url string, handles int, watched bool) *fleet {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	f := &fleet{members: make([]*resourceSet, handles), ends: cancel}
	for i := range f.members {
		f.members[i] = &resourceSet{backend: must(storage.Open(ctx, url)), resources: h.resources, data: h.data}
	}
	if !watched {
		return f
	}
	f.start(handles)
	for i, m := range f.members {
		w := must(m.backend.WatchList(ctx, everything, anywhere, ""))
		for must(w.Next(ctx)).GetEndOfSnapshot() == nil {
		}
		f.running.Go(func() {
			defer w.Close()
			for {
				event, err := w.Next(ctx)
				if err != nil {
					if ctx.Err() == nil {
						b.Error(err)
					}
					f.stop(i)
					return
				}
				if res := event.GetUpsert().GetResource(); res != nil {
					f.arrive(i, res.Version)
				}
			}
		})
	}
	return f
}

// close closes all handles.
func (f *fleet) close(b *testing.B) {
	b.Helper()
	f.ends()
	f.running.Wait()
	for _, m := range f.members {
		if err := m.backend.Close(); err != nil {
			b.Error(err)
		}
	}
}

// write replaces one of the caller's resources through the caller's handle.
func (f *fleet) write(caller, i int) error {
	m := f.members[caller%len(f.members)]
	err := m.write(caller, i)
	if err == nil {
		f.acknowledge(m.resources[caller][i%keysPerCaller].Version)
	}
	return err
}

// arrivals counts acknowledged writes and their arrivals at each reader. It measures the time between both at the first reader.
type arrivals struct {
	written atomic.Int64
	read    []atomic.Int64 // by reader

	mu             sync.Mutex
	acknowledgedAt map[string]time.Time // by version
	seenAt         map[string]time.Time
}

// start begins to measure the arrivals at a number of readers.
func (a *arrivals) start(readers int) {
	a.read, a.acknowledgedAt, a.seenAt = make([]atomic.Int64, readers), map[string]time.Time{}, map[string]time.Time{}
}

func (a *arrivals) acknowledge(version string) {
	a.written.Add(1)
	if len(a.read) > 0 {
		a.note(a.acknowledgedAt, version)
	}
}

func (a *arrivals) arrive(reader int, version string) {
	if reader == 0 {
		a.note(a.seenAt, version)
	}
	a.read[reader].Add(1)
}

// stop records that no more writes arrive at a reader.
func (a *arrivals) stop(reader int) { a.read[reader].Store(math.MaxInt64 / 2) }

func (a *arrivals) note(at map[string]time.Time, version string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	at[version] = time.Now()
}

// settle blocks until every write has arrived at every reader.
func (a *arrivals) settle() {
	for i := range a.read {
		for a.read[i].Load() < a.written.Load() {
			time.Sleep(time.Millisecond)
		}
	}
}

// report prints the latency of the arrivals.
func (a *arrivals) report(what string) {
	if len(a.read) == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	var latencies []time.Duration
	for version, at := range a.acknowledgedAt {
		if seen, ok := a.seenAt[version]; ok {
			latencies = append(latencies, max(0, seen.Sub(at)))
		}
	}
	fmt.Printf("events %s: %d of %d writes, p50 %v, p99 %v after the acknowledgement\n",
		what, len(latencies), len(a.acknowledgedAt), percentile(latencies, 50), percentile(latencies, 99))
}
