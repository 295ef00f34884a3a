package lease_test

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/lease"
	"github.com/ashlar-dev/storage/resourcepb"
)

// slow is a backend whose commits take a while.
type slow struct {
	storage.Backend
	storage.Transactor
	takes time.Duration
}

func (s *slow) Commit(ctx context.Context, ops []storage.Op) ([]*resourcepb.Resource, error) {
	select {
	case <-time.After(s.takes):
		return s.Transactor.Commit(ctx, ops)
	case <-ctx.Done():
		return nil, errors.Join(storage.ErrInconsistent, ctx.Err())
	}
}

// A sign of life that takes less than a third of the time to live is early enough.
func TestAHolderWithASlowStoreKeepsItsLock(t *testing.T) {
	in(t, func(t *testing.T, b storage.Backend) {
		tenure := campaign(t, elector(t, &slow{b, b.(storage.Transactor), 2 * time.Second}, "job"))
		select {
		case <-tenure.Done():
			t.Error(tenure.Err())
		case <-time.After(time.Hour):
		}
		resign(t, tenure)
	})
}

func TestTheLongestTimeToLive(t *testing.T) {
	in(t, func(t *testing.T, b storage.Backend) {
		e, err := lease.NewElector(b, system, "job", &lease.Options{TTL: math.MaxInt64})
		if err != nil {
			t.Fatal(err)
		}
		tenure := campaign(t, e)
		select {
		case <-tenure.Done():
			t.Error(tenure.Err())
		case <-time.After(24 * time.Hour):
		}
		resign(t, tenure)
	})
}

// Candidates that were not fast enough see the next resignation as soon as any other.
func TestALoserIsHandedTheLockAtOnce(t *testing.T) {
	in(t, func(t *testing.T, b storage.Backend) {
		const candidates = 5
		first := campaign(t, elector(t, b, "job"))
		next := make(chan *lease.Tenure)
		for range candidates {
			go func() { next <- campaign(t, elector(t, &slow{b, b.(storage.Transactor), time.Millisecond}, "job")) }()
		}
		<-time.After(time.Minute)
		began := time.Now()
		resign(t, first)
		for range candidates {
			resign(t, <-next)
		}
		if took := time.Since(began); took > 50*time.Millisecond {
			t.Errorf("handing over %d times took %v", candidates, took)
		}
	})
}

// A record of a time to live or an epoch that no holder can have had is refused, and nobody is overtaken by it.
func TestForgedLocksAreRefused(t *testing.T) {
	for name, forged := range map[string]map[string]any{
		"no time":       {"holder": "somebody", "epoch": 3, "ttl": "0s"},
		"negative time": {"holder": "somebody", "epoch": 3, "ttl": "-15s"},
		"last epoch":    {"holder": "somebody", "epoch": 1 << 53, "ttl": "15s"},
		"infinite":      {"holder": "", "epoch": math.Inf(1), "ttl": "15s"},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, b storage.Backend) {
				fields, err := structpb.NewStruct(forged)
				if err != nil {
					t.Fatal(err)
				}
				data, err := anypb.New(fields)
				if err != nil {
					t.Fatal(err)
				}
				typ := &resourcepb.Type{Group: "coordination", GroupVersion: "v1", Kind: "Lock"}
				id := &resourcepb.ID{Type: typ, Tenancy: system, Name: "job", Uid: "u"}
				if _, err := b.WriteCAS(t.Context(), &resourcepb.Resource{Id: id, Data: data}); err != nil {
					t.Fatal(err)
				}
				tenure, err := elector(t, b, "job").Try(t.Context())
				if err == nil {
					resign(t, tenure)
				}
				if err == nil || errors.Is(err, lease.ErrHeld) {
					t.Errorf("a forged record is believed: %v", err)
				}
			})
		})
	}
}

// An epoch outlives the lock's record, and a waiting candidate sees that the lock has none any more.
func TestEpochsGrowWhereALockWasDeleted(t *testing.T) {
	in(t, func(t *testing.T, b storage.Backend) {
		first := campaign(t, elector(t, b, "job"))
		next := make(chan *lease.Tenure)
		go func() { next <- campaign(t, elector(t, b, "job")) }()
		synctest.Wait()
		began := time.Now()
		remove(t, b, "coordination", "Lock")
		second := <-next
		if took := time.Since(began); took != 0 || second.Epoch() <= first.Epoch() {
			t.Errorf("epoch %d came %v after epoch %d", second.Epoch(), took, first.Epoch())
		}
		if err := fenced(t, b, first); !errors.Is(err, storage.ErrWrongUid) {
			t.Errorf("a tenure whose lock was deleted commits: %v", err)
		}
		resign(t, first)
		resign(t, second)
	})
}

// stuck is a backend of which one commit hangs, as on a connection that is dead and does not say so.
type stuck struct {
	storage.Backend
	storage.Transactor
	commits atomic.Int32
	hangs   int32 // the number of the commit that hangs
}

func (s *stuck) Commit(ctx context.Context, ops []storage.Op) ([]*resourcepb.Resource, error) {
	if s.commits.Add(1) == s.hangs {
		<-ctx.Done()
		return nil, errors.Join(storage.ErrInconsistent, ctx.Err())
	}
	return s.Transactor.Commit(ctx, ops)
}

// A sign of life that hangs is given up in time for another one.
func TestAHolderOutlivesACallThatHangs(t *testing.T) {
	in(t, func(t *testing.T, b storage.Backend) {
		tenure := campaign(t, elector(t, &stuck{Backend: b, Transactor: b.(storage.Transactor), hangs: 5}, "job"))
		select {
		case <-tenure.Done():
			t.Error(tenure.Err())
		case <-time.After(time.Hour):
		}
		resign(t, tenure)
	})
}

// A tenure that began so slowly that it is over has ended when it is returned: nobody begins anything in it.
func TestATenureThatIsWonTooSlowly(t *testing.T) {
	in(t, func(t *testing.T, b storage.Backend) {
		tenure := campaign(t, elector(t, &slow{b, b.(storage.Transactor), 6 * time.Second}, "job"))
		if !errors.Is(tenure.Err(), lease.ErrLost) {
			t.Errorf("a tenure that has gone on for two thirds of the time to live without a sign of life: %v", tenure.Err())
		}
		resign(t, tenure)
	})
}
