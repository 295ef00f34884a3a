package lease_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/lease"
	"github.com/ashlar-dev/storage/resourcepb"
	_ "github.com/ashlar-dev/storage/sqlite"
)

var system = &resourcepb.Tenancy{Partition: "default", Namespace: "system"}

// cut is a backend that can be cut off from its store: calls hang until their context is over.
type cut struct {
	storage.Backend
	storage.Transactor
	mu  sync.Mutex
	off bool
}

func newCut(b storage.Backend) *cut { return &cut{Backend: b, Transactor: b.(storage.Transactor)} }

func (c *cut) set(off bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.off = off
}

func (c *cut) Commit(ctx context.Context, ops []storage.Op) ([]*resourcepb.Resource, error) {
	c.mu.Lock()
	off := c.off
	c.mu.Unlock()
	if off {
		<-ctx.Done()
		return nil, errors.Join(storage.ErrInconsistent, ctx.Err())
	}
	return c.Transactor.Commit(ctx, ops)
}

func elector(t *testing.T, b storage.Backend, name string) *lease.Elector {
	t.Helper()
	e, err := lease.NewElector(b, system, name, &lease.Options{TTL: 9 * time.Second, Holder: t.Name()})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// in runs a test in a bubble with a clock of its own, over a store in memory.
func in(t *testing.T, test func(t *testing.T, b storage.Backend)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := inmem.New(nil)
		defer b.Close()
		test(t, b)
	})
}

func campaign(t *testing.T, e *lease.Elector) *lease.Tenure {
	t.Helper()
	tenure, err := e.Campaign(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return tenure
}

func resign(t *testing.T, tenure *lease.Tenure) {
	t.Helper()
	if err := tenure.Resign(t.Context()); err != nil {
		t.Error(err)
	}
}

// fenced reports whether a tenure can still commit.
func fenced(t *testing.T, b storage.Backend, tenure *lease.Tenure) error {
	t.Helper()
	_, err := b.(storage.Transactor).Commit(t.Context(), []storage.Op{tenure.Fence()})
	return err
}

func TestAResignedLockIsHandedOverAtOnce(t *testing.T) {
	in(t, func(t *testing.T, b storage.Backend) {
		first := campaign(t, elector(t, b, "job"))
		next := make(chan *lease.Tenure)
		go func() { next <- campaign(t, elector(t, b, "job")) }()
		<-time.After(time.Hour) // of the bubble's clock: the holder renews all the time
		if first.Err() != nil {
			t.Fatalf("the tenure of a living holder ended: %v", first.Err())
		}
		if err := fenced(t, b, first); err != nil {
			t.Fatal(err)
		}
		before := time.Now()
		resign(t, first)
		second := <-next
		if took := time.Since(before); took != 0 {
			t.Errorf("handing over took %v", took)
		}
		if second.Epoch() != first.Epoch()+1 {
			t.Errorf("epoch %d came after %d", second.Epoch(), first.Epoch())
		}
		if err := fenced(t, b, first); !errors.Is(err, storage.ErrCASFailure) {
			t.Errorf("a tenure that was resigned commits: %v", err)
		}
		resign(t, first)
		resign(t, second)
		if !errors.Is(second.Err(), context.Canceled) {
			t.Errorf("a resigned tenure ended with %v", second.Err())
		}
	})
}

// A holder that cannot renew gives up by itself before another candidate takes over, which is not before the time to live.
func TestAHolderThatIsCutOffIsOvertaken(t *testing.T) {
	in(t, func(t *testing.T, b storage.Backend) {
		line := newCut(b)
		first := campaign(t, elector(t, line, "job"))
		next := make(chan *lease.Tenure)
		go func() { next <- campaign(t, elector(t, b, "job")) }()
		<-time.After(10 * time.Second)
		synctest.Wait()
		line.set(true)
		began := time.Now() // the last sign of life was up to 3 s ago
		<-first.Done()
		if gaveUp := time.Since(began); gaveUp > 6*time.Second || !errors.Is(first.Err(), lease.ErrLost) {
			t.Errorf("the holder gave up after %v with %v", gaveUp, first.Err())
		}
		second := <-next
		if took := time.Since(began); took < 6*time.Second || took > 9*time.Second {
			t.Errorf("the next candidate took over after %v, not 9 s after a sign of life that was up to 3 s old", took)
		}
		if err := fenced(t, b, first); !errors.Is(err, storage.ErrCASFailure) {
			t.Errorf("a tenure that was overtaken commits: %v", err)
		}
		resign(t, first) // takes nothing from the second
		if err := fenced(t, b, second); err != nil || second.Err() != nil {
			t.Errorf("the resignation of an older tenure ended the newest: %v, %v", err, second.Err())
		}
		resign(t, second)
	})
}

// A candidate that comes new does not overtake a living holder, whatever it has not seen.
func TestNobodyIsOvertakenEarly(t *testing.T) {
	in(t, func(t *testing.T, b storage.Backend) {
		first := campaign(t, elector(t, b, "job"))
		for range 50 {
			ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
			if _, err := elector(t, b, "job").Campaign(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a candidate that waited 8 of 9 s: %v", err)
			}
			cancel()
		}
		if first.Err() != nil {
			t.Error(first.Err())
		}
		resign(t, first)
	})
}

// oneAtATime has many candidates, of two handles of a store, hold a lock in turns.
func oneAtATime(t *testing.T, handles ...storage.Backend) {
	t.Helper()
	const candidates, turns = 6, 4
	var mu sync.Mutex
	holds, last := 0, int64(0)
	var all sync.WaitGroup
	for i := range candidates {
		b := handles[i%len(handles)]
		all.Go(func() {
			for range turns {
				e, err := lease.NewElector(b, system, "job", &lease.Options{TTL: time.Minute})
				if err != nil {
					t.Error(err)
					return
				}
				tenure, err := e.Campaign(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if holds++; holds != 1 || tenure.Epoch() <= last {
					t.Errorf("%d hold the lock, in epoch %d after %d", holds, tenure.Epoch(), last)
				}
				last = tenure.Epoch()
				mu.Unlock()
				if err := fenced(t, b, tenure); err != nil {
					t.Error(err)
				}
				mu.Lock()
				holds--
				mu.Unlock()
				resign(t, tenure)
			}
		})
	}
	all.Wait()
	if last != candidates*turns {
		t.Errorf("%d tenures came to epoch %d", candidates*turns, last)
	}
}

// opened opens a store by two handles.
func opened(t *testing.T, url string) []storage.Backend {
	t.Helper()
	var handles []storage.Backend
	for range 2 {
		b, err := storage.Open(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.Close() })
		handles = append(handles, b)
	}
	return handles
}

func TestOneAtATimeInMemory(t *testing.T) {
	t.Parallel()
	b := inmem.New(nil)
	defer b.Close()
	oneAtATime(t, b)
}

func TestOneAtATimeOnSQLite(t *testing.T) {
	t.Parallel()
	oneAtATime(t, opened(t, "sqlite:"+filepath.Join(t.TempDir(), "store.db"))...)
}

func TestLocksOfOtherNamesAreApart(t *testing.T) {
	in(t, func(t *testing.T, b storage.Backend) {
		for _, name := range []string{"job", "job-2", "jo"} {
			defer resign(t, campaign(t, elector(t, b, name)))
		}
	})
}

// A campaign that ends says what was in the way: a holder, or a store that does not answer.
func TestWhatACampaignWaitedFor(t *testing.T) {
	in(t, func(t *testing.T, b storage.Backend) {
		first := campaign(t, elector(t, b, "job"))
		defer resign(t, first)
		for name, want := range map[string]error{"job": lease.ErrHeld, "free": storage.ErrInconsistent} {
			line := newCut(b)
			line.set(true)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := elector(t, line, name).Campaign(ctx)
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, want) {
				t.Errorf("a campaign for %q in vain: %v, expected %v", name, err, want)
			}
			if errors.Is(err, lease.ErrHeld) != (want == lease.ErrHeld) {
				t.Errorf("a campaign for %q in vain: %v", name, err)
			}
		}
	})
}

func TestAHolderHasATextForAName(t *testing.T) {
	t.Parallel()
	b := inmem.New(nil)
	defer b.Close()
	_, err := lease.NewElector(b, system, "job", &lease.Options{Holder: "host-\xff"})
	if !errors.Is(err, storage.ErrInvalid) {
		t.Errorf("a holder whose name is no text: %v", err)
	}
}
