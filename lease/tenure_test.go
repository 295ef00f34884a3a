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

// slow is a backend whose commits take a fixed time.
type slow struct {
	storage.Backend
	storage.Transactor
	delay time.Duration
}

func (s *slow) Commit(ctx context.Context, ops []storage.Op) ([]*resourcepb.Resource, error) {
	select {
	case <-time.After(s.delay):
		return s.Transactor.Commit(ctx, ops)
	case <-ctx.Done():
		return nil, errors.Join(storage.ErrInconsistent, ctx.Err())
	}
}

// A heartbeat that takes less than a third of the time to live arrives in time.
func TestSlowStoreKeepsTenure(t *testing.T) {
	inBubble(t, func(t *testing.T, b storage.Backend) {
		tenure := campaign(t, elector(t, &slow{b, b.(storage.Transactor), 2 * time.Second}, "job"))
		select {
		case <-tenure.Done():
			t.Error(tenure.Err())
		case <-time.After(time.Hour):
		}
		resign(t, tenure)
	})
}

func TestMaximumTTL(t *testing.T) {
	inBubble(t, func(t *testing.T, b storage.Backend) {
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

// A candidate that lost a race notices the next resignation without delay.
func TestLosingCandidateGetsNextResignation(t *testing.T) {
	inBubble(t, func(t *testing.T, b storage.Backend) {
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
			t.Errorf("%d handovers took %v, expected at most 50 ms", candidates, took)
		}
	})
}

// A record with an impossible time to live or epoch is rejected, and no holder is overtaken because of it.
func TestInvalidLockRecords(t *testing.T) {
	for name, invalid := range map[string]map[string]any{
		"no time":       {"holder": "another", "epoch": 3, "ttl": "0s"},
		"negative time": {"holder": "another", "epoch": 3, "ttl": "-15s"},
		"last epoch":    {"holder": "another", "epoch": 1 << 53, "ttl": "15s"},
		"infinite":      {"holder": "", "epoch": math.Inf(1), "ttl": "15s"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b storage.Backend) {
				fields, err := structpb.NewStruct(invalid)
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
					t.Errorf("an invalid record was accepted: %v", err)
				}
			})
		})
	}
}

// The epoch survives the deletion of the lock's record, and a waiting candidate notices the deletion.
func TestEpochsGrowAfterLockDeleted(t *testing.T) {
	inBubble(t, func(t *testing.T, b storage.Backend) {
		first := campaign(t, elector(t, b, "job"))
		next := make(chan *lease.Tenure)
		go func() { next <- campaign(t, elector(t, b, "job")) }()
		synctest.Wait()
		began := time.Now()
		remove(t, b, "coordination", "Lock")
		second := <-next
		if took := time.Since(began); took != 0 || second.Epoch() <= first.Epoch() {
			t.Errorf("epoch %d began %v after the lock of epoch %d was deleted, expected a larger epoch at once", second.Epoch(), took, first.Epoch())
		}
		if err := commitFenced(t, b, first); !errors.Is(err, storage.ErrWrongUid) {
			t.Errorf("commit with a tenure whose lock was deleted: %v, expected ErrWrongUid", err)
		}
		resign(t, first)
		resign(t, second)
	})
}

// stuck is a backend with one commit that hangs, as on a dead connection.
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

// A heartbeat that hangs times out early enough for another attempt.
func TestTenureSurvivesHangingCall(t *testing.T) {
	inBubble(t, func(t *testing.T, b storage.Backend) {
		tenure := campaign(t, elector(t, &stuck{Backend: b, Transactor: b.(storage.Transactor), hangs: 5}, "job"))
		select {
		case <-tenure.Done():
			t.Error(tenure.Err())
		case <-time.After(time.Hour):
		}
		resign(t, tenure)
	})
}

// Campaign returns a tenure that was acquired after its renewal timeout as ended, so no work begins in it.
func TestTenureWonTooLate(t *testing.T) {
	inBubble(t, func(t *testing.T, b storage.Backend) {
		tenure := campaign(t, elector(t, &slow{b, b.(storage.Transactor), 6 * time.Second}, "job"))
		if !errors.Is(tenure.Err(), lease.ErrLost) {
			t.Errorf("a tenure won after two thirds of its time to live: %v, expected ErrLost", tenure.Err())
		}
		resign(t, tenure)
	})
}
