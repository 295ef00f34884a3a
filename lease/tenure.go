package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// ErrLost is the error of a tenure that ended without a resignation: another candidate took over, or the holder could not renew in time.
var ErrLost = errors.New("the lock was lost")

// ErrHeld is returned if a lock is not free.
var ErrHeld = errors.New("the lock is held")

// Tenure is a period during which a candidate holds a lock.
type Tenure struct {
	store *lockStore
	epoch int64
	lock  *resourcepb.Resource // unchanged during the tenure
	ttl   time.Duration

	endCh       chan struct{}
	stop        context.CancelFunc
	renewExitCh chan struct{} // closed when the renewing goroutine has exited

	mu  sync.Mutex
	err error
}

// startTenure returns a tenure that a try has won, and starts renewing it. began is the start of that try.
func (s *lockStore) startTenure(r *record, began time.Time) *Tenure {
	ctx, cancel := context.WithCancel(context.Background())
	t := &Tenure{store: s, epoch: r.epoch, lock: r.lock, ttl: r.ttl, endCh: make(chan struct{}), stop: cancel, renewExitCh: make(chan struct{})}
	if time.Since(began) >= t.renewalTimeout() { // the tenure was won too late: return it as ended
		t.expire()
	}
	go t.renew(ctx, r.heartbeat, r.holder, began)
	return t
}

// Epoch returns the number of the tenure. Later tenures have higher numbers.
func (t *Tenure) Epoch() int64 { return t.epoch }

// Fence returns an operation for [storage.Transactor] that fails the transaction with [storage.ErrCASFailure] if a later tenure has
// begun or this one was resigned.
func (t *Tenure) Fence() storage.Op {
	return storage.Op{Check: proto.CloneOf(t.lock.GetId()), Version: t.lock.GetVersion()}
}

// Done returns a channel that is closed when the tenure has ended.
func (t *Tenure) Done() <-chan struct{} { return t.endCh }

// Err returns nil during the tenure. Afterwards it returns the reason: [ErrLost], or context.Canceled after Resign.
func (t *Tenure) Err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

// Resign ends the tenure and frees the lock, so that the next candidate need not wait. If it fails, the lock becomes free when its time to live
// has passed. Calling it again, or after the tenure was lost, does nothing.
func (t *Tenure) Resign(ctx context.Context) error {
	t.end(context.Canceled)
	t.stop()
	<-t.renewExitCh
	free := t.store.newLock(t.lock, "", t.epoch)
	_, err := t.store.backend.WriteCAS(ctx, free)
	if errors.Is(err, storage.ErrCASFailure) || errors.Is(err, storage.ErrWrongUid) {
		return nil // a later tenure has begun, or this one has already resigned
	}
	if err != nil {
		return fmt.Errorf("resign lock %q: %w", t.store.name, err)
	}
	return nil
}

// end ends the tenure with an error, unless it has ended already.
func (t *Tenure) end(cause error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err == nil {
		t.err = cause
		close(t.endCh)
	}
}

// expire ends a tenure whose renewal has timed out.
func (t *Tenure) expire() {
	t.end(fmt.Errorf("%w: no heartbeat could be written for %v", ErrLost, t.renewalTimeout()))
}

// renew writes heartbeats until the tenure ends. renewedAt is the start of the last successful one.
func (t *Tenure) renew(ctx context.Context, heartbeat *resourcepb.Resource, holder string, renewedAt time.Time) {
	defer close(t.renewExitCh)
	defer t.stop()
	// A timer ends the tenure, because a heartbeat may hang.
	deadline := time.AfterFunc(t.renewalTimeout()-time.Since(renewedAt), func() {
		t.expire()
		t.stop()
	})
	defer deadline.Stop()
	took := time.Since(renewedAt)
	pause, isRetry := t.ttl/3-took, false // the duration of a heartbeat is part of its third
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		began := time.Now()
		limit := t.renewalTimeout() - began.Sub(renewedAt)
		if !isRetry { // a call that hangs must leave time for another one; a slow store gets a longer timeout
			limit = max(limit/2, 2*took)
		}
		stored, err := t.sendHeartbeat(ctx, limit, heartbeat, holder)
		isRetry = err != nil
		switch {
		case err == nil:
			heartbeat, renewedAt, took = stored, began, time.Since(began)
			if pause = t.ttl/3 - took; deadline.Stop() {
				deadline.Reset(t.renewalTimeout() - took)
			}
		case errors.Is(err, ErrLost), errors.Is(err, storage.ErrClosed):
			t.end(err)
			return
		default:
			pause = min(retryPause, t.ttl/10)
		}
	}
}

// renewalTimeout is how long a tenure lasts without a successful renewal.
func (t *Tenure) renewalTimeout() time.Duration { return t.ttl - t.ttl/3 }

// sendHeartbeat writes a heartbeat within limit, and proves that the tenure is the latest one.
func (t *Tenure) sendHeartbeat(
	ctx context.Context, limit time.Duration, last *resourcepb.Resource, holder string,
) (*resourcepb.Resource, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	stored, err := t.store.tx.Commit(ctx, []storage.Op{t.Fence(), {Write: t.store.newHeartbeat(last, t.lock.GetId(), holder, t.epoch)}})
	if err == nil {
		return stored[1], nil
	}
	if failed := (*storage.OpError)(nil); !errors.As(err, &failed) {
		return nil, err
	} else if failed.Index == 0 {
		return nil, fmt.Errorf("%w: a later tenure of %q has begun", ErrLost, t.store.name)
	}
	// The stored heartbeat differs from the last known one, but the lock is unchanged: an earlier attempt took effect.
	found, readErr := t.store.readResource(ctx, heartbeatType)
	if readErr != nil {
		return nil, readErr
	}
	proto.Reset(last)
	proto.Merge(last, found)
	return nil, err
}
