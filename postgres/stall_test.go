//go:build integration

package postgres_test

import (
	"errors"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/postgres"
	"github.com/ashlar-dev/storage/resourcepb"
)

// stalled is a store on a disk that stalls, with a handle for each kind of call, so that no call waits for another's batch.
type stalled struct {
	t       *testing.T
	disk    *env.InterceptedPostgres
	schema  string
	url     string
	handles map[string]storage.Backend
	old     map[string]*resourcepb.Resource
}

func newStalled(t *testing.T, disk *env.InterceptedPostgres) *stalled {
	t.Helper()
	schema := disk.Schema(t)
	s := &stalled{
		t: t, disk: disk, schema: schema, url: disk.StoreURLIn(t, schema, "application_name="+schema),
		handles: map[string]storage.Backend{}, old: map[string]*resourcepb.Resource{},
	}
	for _, name := range []string{"create", "update", "delete", "commit"} {
		s.handles[name] = fixture.Open(t, s.url)
		if name != "create" {
			s.old[name] = fixture.Write(t, s.handles[name], fixture.Resource(name, "old"))
		}
	}
	return s
}

// callResult is the result of a call, and the version of a successful one.
type callResult struct {
	version string
	err     error
}

// stall stalls the disk, starts the calls, and returns when all of them wait for the disk. Their timeout starts then. awaitOutcomes waits for
// the results.
func (s *stalled) stall(timeout time.Duration) (awaitOutcomes func() map[string]callResult) {
	s.t.Helper()
	s.disk.Stall(s.t)
	ctx, startTimeout := postgres.DelayedTimeout(s.t)
	var group sync.WaitGroup
	var mu sync.Mutex
	outcomes := map[string]callResult{}
	for name, b := range s.handles {
		call := mutations(b, s.old)[name]
		group.Go(func() {
			version, err := call(ctx)
			mu.Lock()
			defer mu.Unlock()
			outcomes[name] = callResult{version, err}
		})
	}
	conn := s.disk.Connect(s.t)
	fixture.Eventually(s.t, "all calls to wait for the disk", func() bool {
		var n int
		if err := conn.QueryRow(fixture.Context(s.t), `select count(*) from pg_stat_activity
			where application_name = $1 and state = 'active' and lower(wait_event) in ('walsync', 'walwrite')`, s.schema).Scan(&n); err != nil {
			s.t.Fatal(err)
		}
		return n >= len(s.handles)
	})
	startTimeout(timeout)
	return func() map[string]callResult {
		group.Wait()
		return outcomes
	}
}

// truthful compares the results of calls with the stored resources: a success must be stored, and a definite failure must not.
func (s *stalled) truthful(outcomes map[string]callResult) {
	s.t.Helper()
	b := fixture.Open(s.t, s.url)
	for name, f := range outcomes {
		res, err := b.Read(fixture.Context(s.t), storage.StrongConsistency, fixture.Resource(name, "").Id)
		if err != nil && !errors.Is(err, storage.ErrNotFound) {
			s.t.Errorf("%s: %v", name, err)
			continue
		}
		happened := res.GetVersion() != s.old[name].GetVersion()
		switch {
		case f.err == nil && res.GetVersion() != f.version:
			s.t.Errorf("%s: acknowledged at %q, stored is %v", name, f.version, res)
		case f.err != nil && !errors.Is(f.err, storage.ErrInconsistent) && happened:
			s.t.Errorf("%s: %v, but it was applied", name, f.err)
		}
	}
}

// TestStalledDisk stalls the server's disk for longer than one attempt may take. The calls determine that they succeeded, even if
// the store is closed for writing meanwhile.
func TestStalledDisk(t *testing.T) {
	t.Parallel()
	disk := env.StartInterceptedPostgres(t)
	s := newStalled(t, disk)
	moved := newStalled(t, disk)
	moved.handles = map[string]storage.Backend{"update": moved.handles["update"], "commit": moved.handles["commit"]}
	fencer, ok := storage.As[driver.Mover](fixture.Open(t, moved.url))
	if !ok {
		t.Fatal("the backend cannot be closed for writing")
	}
	w := fixture.WatchAll(t, fixture.Open(t, s.url))
	for fixture.Next(t, w).GetEndOfSnapshot() == nil {
		continue
	}

	awaitOutcomes, movedFates := s.stall(fixture.Timeout), moved.stall(fixture.Timeout)
	fenced := make(chan error, 1)
	go func() { fenced <- fencer.SetFence(fixture.Context(t), new("elsewhere")) }()
	lasts(9 * time.Second)
	disk.Unstall(t)
	all := awaitOutcomes()
	for name, f := range all {
		if f.err != nil {
			t.Errorf("after 9 s of a stalled disk: %s: %v", name, f.err)
		}
	}
	s.truthful(all)
	for name, f := range movedFates() {
		if f.err != nil {
			t.Errorf("after 9 s of a stalled disk, closed for writing meanwhile: %s: %v", name, f.err)
		}
	}
	if err := <-fenced; err != nil {
		t.Errorf("fence: %v", err)
	}
	last := fixture.Write(t, fixture.Open(t, s.url), fixture.Resource(marker, ""))
	count := map[string]int{}
	for {
		event := fixture.Next(t, w)
		res := event.GetUpsert().GetResource()
		if event.GetDelete() != nil {
			res = event.GetDelete().GetResource()
		}
		if res.GetVersion() == last.Version {
			break
		}
		count[res.GetId().GetName()]++
	}
	if want := map[string]int{"create": 1, "update": 1, "delete": 1, "commit": 1}; !maps.Equal(count, want) {
		t.Errorf("the watch returned %v, expected each once", count)
	}
}

// TestStalledDiskAtTheDeadline stalls the disk for longer than callers wait, and for longer than a backend is open. The results are
// correct, or report an unknown outcome.
func TestStalledDiskAtTheDeadline(t *testing.T) {
	t.Parallel()
	disk := env.StartInterceptedPostgres(t)
	s := newStalled(t, disk)
	awaitOutcomes := s.stall(8 * time.Second)
	outcomes := awaitOutcomes()
	disk.Unstall(t)
	for name, f := range outcomes {
		if !isInconsistent(f.err) {
			t.Errorf("at the deadline, on a stalled disk: %s: %q, %v", name, f.version, f.err)
		}
	}
	s.truthful(outcomes)

	closed := newStalled(t, disk)
	awaitOutcomes = closed.stall(fixture.Timeout)
	var closing sync.WaitGroup
	for name, b := range closed.handles {
		closing.Go(func() {
			if err := b.Close(); err != nil {
				t.Errorf("%s: close: %v", name, err)
			}
		})
	}
	lasts(4 * time.Second)
	disk.Unstall(t)
	closing.Wait()
	outcomes = awaitOutcomes()
	for name, f := range outcomes {
		if f.err != nil && !errors.Is(f.err, storage.ErrClosed) {
			t.Errorf("closed, on a stalled disk: %s: %v, expected ErrClosed", name, f.err)
		}
	}
	fixture.Eventually(t, "the server to finish the calls", func() bool {
		var n int
		if err := disk.Connect(t).QueryRow(fixture.Context(t), "select count(*) from pg_stat_activity where application_name = $1", closed.schema).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n == 0
	})

	closed.truthful(outcomes)
}
