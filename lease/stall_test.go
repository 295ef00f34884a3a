package lease_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// stalling is a backend whose calls block while it is stalled.
type stalling struct {
	storage.Backend
	storage.Transactor

	mu   sync.Mutex
	open chan struct{} // closed to resume calls; nil while they are not stalled
}

func (s *stalling) stall() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = make(chan struct{})
}

func (s *stalling) resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.open)
	s.open = nil
}

func (s *stalling) wait(ctx context.Context) error {
	s.mu.Lock()
	open := s.open
	s.mu.Unlock()
	if open == nil {
		return nil
	}
	select {
	case <-open:
		return nil
	case <-ctx.Done():
		return errors.Join(storage.ErrInconsistent, ctx.Err())
	}
}

func (s *stalling) Read(ctx context.Context, c storage.ReadConsistency, id *resourcepb.ID) (*resourcepb.Resource, error) {
	if err := s.wait(ctx); err != nil {
		return nil, err
	}
	return s.Backend.Read(ctx, c, id)
}

func (s *stalling) Commit(ctx context.Context, ops []storage.Op) ([]*resourcepb.Resource, error) {
	if err := s.wait(ctx); err != nil {
		return nil, err
	}
	return s.Transactor.Commit(ctx, ops)
}

// unwatched is a backend that cannot open watches.
type unwatched struct {
	storage.Backend
	storage.Transactor
}

func (unwatched) WatchList(context.Context, storage.UnversionedType, *resourcepb.Tenancy, string) (storage.Watch, error) {
	return nil, storage.ErrInconsistent
}

// A candidate takes over when it has observed the last heartbeat for the whole time to live, not earlier, although it tries again and again
// while it has no watch.
func TestTakeoverAfterTTL(t *testing.T) {
	inBubble(t, func(t *testing.T, b storage.Backend) {
		s := &stalling{Backend: b, Transactor: b.(storage.Transactor)}
		lost := campaign(t, elector(t, s, "job"))
		<-time.After(time.Hour)
		s.stall()
		began := time.Now()
		tenure := campaign(t, elector(t, unwatched{b, b.(storage.Transactor)}, "job"))
		if waited := time.Since(began); waited < 9*time.Second || waited > 12*time.Second {
			t.Errorf("the candidate took over after %v, expected 9s to 12s", waited)
		}
		s.resume()
		<-lost.Done()
		resign(t, tenure)
	})
}

// A renewal that starts in time succeeds although the store stalls, and the lease expires normally afterwards.
func TestRenewalDuringStall(t *testing.T) {
	inBubble(t, func(t *testing.T, b storage.Backend) {
		const leases = 40 // more than maxConcurrentRenewals
		s := &stalling{Backend: b, Transactor: b.(storage.Transactor)}
		k := keeper(t, s)
		defer k.Close()
		name := func(i int) string { return fmt.Sprint("session", i) }
		for i := range leases {
			if err := attach(t.Context(), b, grant(t, k, name(i), 10*time.Second), name(i)); err != nil {
				t.Fatal(err)
			}
		}
		<-time.After(9 * time.Second)
		s.stall()
		renewed := make(chan error)
		for i := range leases - 1 {
			go func() { renewed <- second(k.Renew(t.Context(), name(i))) }()
		}
		<-time.After(20 * time.Second)
		s.resume()
		for range leases - 1 {
			if err := <-renewed; err != nil {
				t.Error(err)
			}
		}
		<-time.After(9 * time.Second)
		synctest.Wait()
		for i := range leases {
			if expired := i == leases-1; missing(t, b, name(i)) != expired {
				t.Errorf("lease %d: attached resource deleted: %v", i, !expired)
			}
		}
		<-time.After(2 * time.Second)
		synctest.Wait()
		for i := range leases {
			if !missing(t, b, name(i)) {
				t.Errorf("lease %d is no longer renewed but has not ended", i)
			}
		}
	})
}

// A failing renewal delays the end of a lease only while it runs.
func TestFailedRenewalDoesNotExtend(t *testing.T) {
	inBubble(t, func(t *testing.T, b storage.Backend) {
		s := &stalling{Backend: b, Transactor: b.(storage.Transactor)}
		k := keeper(t, s)
		defer k.Close()
		if err := attach(t.Context(), b, grant(t, k, "session", 10*time.Second), "attached"); err != nil {
			t.Fatal(err)
		}
		<-time.After(9 * time.Second)
		s.stall()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if _, err := k.Renew(ctx, "session"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Renew during a stall: %v, expected DeadlineExceeded", err)
		}
		s.resume()
		<-time.After(time.Second)
		synctest.Wait()
		if !missing(t, b, "attached") {
			t.Error("a lease that is no longer renewed has not ended")
		}
	})
}

// slowRenewals is a backend whose renewals take five times as long as other commits.
type slowRenewals struct{ slow }

func (s *slowRenewals) Commit(ctx context.Context, ops []storage.Op) ([]*resourcepb.Resource, error) {
	if ops[0].Check != nil {
		wait := slow{s.Backend, s.Transactor, 5 * s.delay}
		return wait.Commit(ctx, ops)
	}
	return s.slow.Commit(ctx, ops)
}

// A renewal that starts while an expired lease waits to be ended takes precedence.
func TestRenewalBeforePendingEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, b storage.Backend) {
		const leases, atOnce = 40, 8
		s := &slowRenewals{slow{b, b.(storage.Transactor), time.Second}}
		k := keeper(t, s)
		defer k.Close()
		granted := make(chan error)
		for i := range leases {
			go func() { granted <- second(k.Grant(t.Context(), fmt.Sprint("session", i), 10*time.Second)) }()
		}
		for range leases {
			if err := <-granted; err != nil {
				t.Fatal(err)
			}
		}
		<-time.After(10*time.Second + 500*time.Millisecond)
		synctest.Wait()
		renewed := make(chan error)
		for i := range leases {
			go func() { renewed <- second(k.Renew(t.Context(), fmt.Sprint("session", i))) }()
		}
		late := 0
		for range leases {
			if err := <-renewed; errors.Is(err, storage.ErrNotFound) {
				late++
			} else if err != nil {
				t.Error(err)
			}
		}
		if late > atOnce {
			t.Errorf("%d leases ended during their renewal, expected at most the %d that were already ending", late, atOnce)
		}
	})
}
