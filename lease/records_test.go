package lease_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/lease"
	"github.com/ashlar-dev/storage/resourcepb"
)

// setFields gives a record other fields, as another program would.
func setFields(t *testing.T, b storage.Backend, record *resourcepb.Resource, fields map[string]any) {
	t.Helper()
	s, err := structpb.NewStruct(fields)
	if err != nil {
		t.Fatal(err)
	}
	if record.Data, err = anypb.New(s); err != nil {
		t.Fatal(err)
	}
	if _, err := b.WriteCAS(t.Context(), record); err != nil {
		t.Fatal(err)
	}
}

// The state of a lock has its holder and its epoch, up to the last one that can be stored. A closed store has none.
func TestLockState(t *testing.T) {
	inBubble(t, func(t *testing.T, b storage.Backend) {
		e := elector(t, b, "job")
		expect := func(isHeld bool, epoch int64) {
			t.Helper()
			holder, latest, err := e.Holder(t.Context())
			if err != nil || (holder != "") != isHeld || latest != epoch {
				t.Errorf("Holder returned %q, %d, %v, expected held %v and epoch %d", holder, latest, err, isHeld, epoch)
			}
			if state, err := e.State(t.Context()); err != nil || state.Holder != holder || state.Epoch != epoch || (state.Heartbeat != "") != (epoch > 0) {
				t.Errorf("State returned %+v, %v, expected %q and epoch %d", state, err, holder, epoch)
			}
		}
		expect(false, 0)
		tenure := campaign(t, e)
		expect(true, 1)
		resign(t, tenure)
		expect(false, 1)
		const last = 1<<53 - 2
		setFields(t, b, only(t, b, "coordination", "Lock"), map[string]any{"holder": "", "epoch": last, "ttl": "9s"})
		expect(false, last)
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if _, _, err := e.Holder(t.Context()); !errors.Is(err, storage.ErrClosed) {
			t.Errorf("Holder: %v, expected ErrClosed", err)
		}
		if _, err := e.State(t.Context()); !errors.Is(err, storage.ErrClosed) {
			t.Errorf("State: %v, expected ErrClosed", err)
		}
	})
}

// A candidate that waits for a lock fails at once when another program makes the lock's record invalid.
func TestWaitingCandidateNoticesInvalidRecord(t *testing.T) {
	inBubble(t, func(t *testing.T, b storage.Backend) {
		tenure := campaign(t, elector(t, b, "job"))
		failed := make(chan error, 1)
		go func() {
			_, err := elector(t, b, "job").Campaign(t.Context())
			failed <- err
		}()
		synctest.Wait()
		began := time.Now()
		setFields(t, b, only(t, b, "coordination", "Lock"), map[string]any{"holder": "another", "epoch": 0, "ttl": "9s"})
		if err := <-failed; err == nil || errors.Is(err, lease.ErrHeld) || time.Since(began) != 0 {
			t.Errorf("Campaign returned %v after %v, expected an error about the record at once", err, time.Since(began))
		}
		<-tenure.Done()
		resign(t, tenure)
	})
}

// failingReferences is a backend whose first calls of OwnerReferences fail.
type failingReferences struct {
	storage.Backend
	storage.Transactor
	failures atomic.Int64
}

func (f *failingReferences) OwnerReferences(ctx context.Context, id *resourcepb.ID) ([]*resourcepb.ID, error) {
	if f.failures.Add(-1) >= 0 {
		return nil, storage.ErrInconsistent
	}
	return f.Backend.OwnerReferences(ctx, id)
}

// The same keeper repeats the end of a lease after a failure.
func TestFailedEndIsRepeated(t *testing.T) {
	inBubble(t, func(t *testing.T, inner storage.Backend) {
		b := &failingReferences{Backend: inner, Transactor: inner.(storage.Transactor)}
		b.failures.Store(3)
		k := keeper(t, b)
		defer k.Close()
		l := grant(t, k, "session", time.Second)
		if err := attach(t.Context(), inner, l, "attached"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if b.failures.Load() >= 0 || !missing(t, inner, "attached") {
			t.Errorf("the attached resource was not deleted after %d calls", 3-b.failures.Load())
		}
	})
}

// A lease whose record has no positive time to live cannot be used. It does not end until it is revoked.
func TestLeaseRecordWithoutTTL(t *testing.T) {
	inBubble(t, func(t *testing.T, b storage.Backend) {
		k := keeper(t, b)
		defer k.Close()
		l := grant(t, k, "session", time.Second)
		if err := attach(t.Context(), b, l, "attached"); err != nil {
			t.Fatal(err)
		}
		setFields(t, b, only(t, b, "lease", "Lease"), map[string]any{"ttl": "0s", "ended": false})
		time.Sleep(time.Hour)
		if _, err := k.Lease(t.Context(), "session"); err == nil || errors.Is(err, storage.ErrNotFound) {
			t.Errorf("Lease: %v, expected an error about the record", err)
		}
		if names, err := k.Names(t.Context()); err != nil || slices.Contains(names, "session") {
			t.Errorf("Names: %q, %v, expected none", names, err)
		}
		if missing(t, b, "attached") {
			t.Error("the lease ended by itself")
		}
		if err := k.Revoke(fixture.Context(t), "session"); err != nil || !missing(t, b, "attached") {
			t.Errorf("the lease was not revoked: %v", err)
		}
	})
}
