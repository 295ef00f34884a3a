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

// disconnectable is a backend that can be disconnected from its store: its commits block until their context ends.
type disconnectable struct {
	storage.Backend
	storage.Transactor
	mu  sync.Mutex
	off bool
}

func newDisconnectable(b storage.Backend) *disconnectable {
	return &disconnectable{Backend: b, Transactor: b.(storage.Transactor)}
}

func (c *disconnectable) set(off bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.off = off
}

func (c *disconnectable) Commit(ctx context.Context, ops []storage.Op) ([]*resourcepb.Resource, error) {
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

// inBubble runs a test in a synctest bubble, over a store in memory.
func inBubble(t *testing.T, test func(t *testing.T, b storage.Backend)) {
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

// commitFenced commits with the fence of a tenure and returns the error.
func commitFenced(t *testing.T, b storage.Backend, tenure *lease.Tenure) error {
	t.Helper()
	_, err := b.(storage.Transactor).Commit(t.Context(), []storage.Op{tenure.Fence()})
	return err
}

func TestResignHandsOverImmediately(t *testing.T) {
	inBubble(t, func(t *testing.T, b storage.Backend) {
		first := campaign(t, elector(t, b, "job"))
		next := make(chan *lease.Tenure)
		go func() { next <- campaign(t, elector(t, b, "job")) }()
		<-time.After(time.Hour) // of the bubble's clock; the holder keeps renewing
		if first.Err() != nil {
			t.Fatalf("the tenure of a live holder ended: %v", first.Err())
		}
		if err := commitFenced(t, b, first); err != nil {
			t.Fatal(err)
		}
		before := time.Now()
		resign(t, first)
		second := <-next
		if took := time.Since(before); took != 0 {
			t.Errorf("the handover took %v", took)
		}
		if second.Epoch() != first.Epoch()+1 {
			t.Errorf("epoch %d came after %d", second.Epoch(), first.Epoch())
		}
		if err := commitFenced(t, b, first); !errors.Is(err, storage.ErrCASFailure) {
			t.Errorf("commit with a resigned tenure: %v, expected ErrCASFailure", err)
		}
		resign(t, first)
		resign(t, second)
		if !errors.Is(second.Err(), context.Canceled) {
			t.Errorf("a resigned tenure ended with %v", second.Err())
		}
	})
}

// A holder that cannot renew ends its tenure before another candidate takes over, which does not happen before the time to live.
func TestDisconnectedHolderIsOvertaken(t *testing.T) {
	inBubble(t, func(t *testing.T, b storage.Backend) {
		conn := newDisconnectable(b)
		first := campaign(t, elector(t, conn, "job"))
		next := make(chan *lease.Tenure)
		go func() { next <- campaign(t, elector(t, b, "job")) }()
		<-time.After(10 * time.Second)
		synctest.Wait()
		conn.set(true)
		began := time.Now() // the last heartbeat was up to 3 s ago
		<-first.Done()
		if lostAfter := time.Since(began); lostAfter > 6*time.Second || !errors.Is(first.Err(), lease.ErrLost) {
			t.Errorf("the holder's tenure ended after %v with %v", lostAfter, first.Err())
		}
		second := <-next
		if took := time.Since(began); took < 6*time.Second || took > 9*time.Second {
			t.Errorf("the next candidate took over after %v, expected 9 s after a heartbeat that was up to 3 s old", took)
		}
		if err := commitFenced(t, b, first); !errors.Is(err, storage.ErrCASFailure) {
			t.Errorf("commit with an overtaken tenure: %v, expected ErrCASFailure", err)
		}
		resign(t, first) // does not affect the second tenure
		if err := commitFenced(t, b, second); err != nil || second.Err() != nil {
			t.Errorf("resigning an older tenure ended the latest one: %v, %v", err, second.Err())
		}
		resign(t, second)
	})
}

// A new candidate does not overtake a live holder, although it has not observed earlier heartbeats.
func TestLiveHolderIsNotOvertaken(t *testing.T) {
	inBubble(t, func(t *testing.T, b storage.Backend) {
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

// testMutualExclusion lets many candidates, on two handles of a store, hold a lock in turns.
func testMutualExclusion(t *testing.T, handles ...storage.Backend) {
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
					t.Errorf("%d candidates hold the lock, in epoch %d after %d", holds, tenure.Epoch(), last)
				}
				last = tenure.Epoch()
				mu.Unlock()
				if err := commitFenced(t, b, tenure); err != nil {
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
		t.Errorf("%d tenures ended at epoch %d", candidates*turns, last)
	}
}

// openTwice opens two handles of a store.
func openTwice(t *testing.T, url string) []storage.Backend {
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

func TestMutualExclusionInMemory(t *testing.T) {
	t.Parallel()
	b := inmem.New(nil)
	defer b.Close()
	testMutualExclusion(t, b)
}

func TestMutualExclusionOnSQLite(t *testing.T) {
	t.Parallel()
	testMutualExclusion(t, openTwice(t, "sqlite:"+filepath.Join(t.TempDir(), "store.db"))...)
}

func TestLocksOfDifferentNamesAreIndependent(t *testing.T) {
	inBubble(t, func(t *testing.T, b storage.Backend) {
		for _, name := range []string{"job", "job-2", "jo"} {
			defer resign(t, campaign(t, elector(t, b, name)))
		}
	})
}

// The error of a failed campaign names the obstacle: a holder, or a store that does not answer.
func TestCampaignErrorNamesObstacle(t *testing.T) {
	inBubble(t, func(t *testing.T, b storage.Backend) {
		first := campaign(t, elector(t, b, "job"))
		defer resign(t, first)
		for name, want := range map[string]error{"job": lease.ErrHeld, "free": storage.ErrInconsistent} {
			conn := newDisconnectable(b)
			conn.set(true)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := elector(t, conn, name).Campaign(ctx)
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, want) {
				t.Errorf("the campaign for %q failed with %v, expected %v", name, err, want)
			}
			if errors.Is(err, lease.ErrHeld) != (want == lease.ErrHeld) {
				t.Errorf("the campaign for %q failed with %v, expected no ErrHeld", name, err)
			}
		}
	})
}

func TestHolderNameMustBeUTF8(t *testing.T) {
	t.Parallel()
	b := inmem.New(nil)
	defer b.Close()
	_, err := lease.NewElector(b, system, "job", &lease.Options{Holder: "host-\xff"})
	if !errors.Is(err, storage.ErrInvalid) {
		t.Errorf("a holder name that is not UTF-8: %v, expected ErrInvalid", err)
	}
}
