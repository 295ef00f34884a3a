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

// ErrLost says that a tenure has ended without being resigned: another candidate took over, or the holder could not renew in time.
var ErrLost = errors.New("the lock was lost")

// ErrHeld says that a lock is not free.
var ErrHeld = errors.New("the lock is held")

// Tenure is the time for which a candidate holds a lock.
type Tenure struct {
	store *lockStore
	epoch int64
	lock  *resourcepb.Resource // stands still
	ttl   time.Duration

	endCh       chan struct{}
	stop        context.CancelFunc
	renewExitCh chan struct{} // when the renewing goroutine has ended

	mu  sync.Mutex
	err error
}

// startTenure begins a startTenure that was won by a try which began at that time, and keeps it up.
func (s *lockStore) startTenure(r *record, began time.Time) *Tenure {
	ctx, cancel := context.WithCancel(context.Background())
	t := &Tenure{store: s, epoch: r.epoch, lock: r.lock, ttl: r.ttl, endCh: make(chan struct{}), stop: cancel, renewExitCh: make(chan struct{})}
	if time.Since(began) >= t.renewalTimeout() { // nobody has it begin anything
		t.expire()
	}
	go t.renew(ctx, r.heartbeat, r.holder, began)
	return t
}

// Epoch is the number of the tenure. Later ones have higher numbers.
func (t *Tenure) Epoch() int64 { return t.epoch }

// Fence is an operation for [storage.Transactor]: the transaction fails with [storage.ErrCASFailure] if this is not the newest tenure.
func (t *Tenure) Fence() storage.Op {
	return storage.Op{Check: proto.CloneOf(t.lock.GetId()), Version: t.lock.GetVersion()}
}

// Done is closed when the tenure has ended.
func (t *Tenure) Done() <-chan struct{} { return t.endCh }

// Err returns nil during the tenure, and then why it ended: [ErrLost], or context.Canceled after Resign.
func (t *Tenure) Err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

// Resign ends the tenure and frees the lock, so that the next candidate need not wait. It is an error if that could not be done; the lock
// is then free when its time to live has passed. Resigning again, or what was lost, is fine.
func (t *Tenure) Resign(ctx context.Context) error {
	t.end(context.Canceled)
	t.stop()
	<-t.renewExitCh
	free := t.store.newLock(t.lock, "", t.epoch)
	_, err := t.store.backend.WriteCAS(ctx, free)
	if errors.Is(err, storage.ErrCASFailure) || errors.Is(err, storage.ErrWrongUid) {
		return nil // another tenure has begun, or this one was resigned already
	}
	if err != nil {
		return fmt.Errorf("resign lock %q: %w", t.store.name, err)
	}
	return nil
}

// end ends the tenure for a reason, if it has not ended yet.
func (t *Tenure) end(why error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err == nil {
		t.err = why
		close(t.endCh)
	}
}

// expire ends a tenure that has gone on for long enough without a sign of life.
func (t *Tenure) expire() {
	t.end(fmt.Errorf("%w: no sign of life could be given for %v", ErrLost, t.renewalTimeout()))
}

// renew writes heartbeats until the tenure ends. good is when the last one that succeeded was begun.
func (t *Tenure) renew(ctx context.Context, beat *resourcepb.Resource, holder string, good time.Time) {
	defer close(t.renewExitCh)
	defer t.stop()
	// A heartbeat that hangs must not keep the tenure up: its end is a timer of its own.
	deadline := time.AfterFunc(t.renewalTimeout()-time.Since(good), func() {
		t.expire()
		t.stop()
	})
	defer deadline.Stop()
	took := time.Since(good)
	pause, again := t.ttl/3-took, false // what a sign of life takes is part of its third
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		began := time.Now()
		limit := t.renewalTimeout() - began.Sub(good)
		if !again { // a call that hangs must leave time for another one; a store that is slow is given more
			limit = max(limit/2, 2*took)
		}
		stored, err := t.sendHeartbeat(ctx, limit, beat, holder)
		again = err != nil
		switch {
		case err == nil:
			beat, good, took = stored, began, time.Since(began)
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

// renewalTimeout is how long a tenure goes on without a sign of life.
func (t *Tenure) renewalTimeout() time.Duration { return t.ttl - t.ttl/3 }

// sendHeartbeat gives a sign of life, in a limited time, and proves that the tenure is the newest one.
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
		return nil, fmt.Errorf("%w: another tenure of %q has begun", ErrLost, t.store.name)
	}
	// The heartbeat is another one than the last that this tenure knows of, but the lock is its own: an earlier try took effect.
	found, readErr := t.store.readResource(ctx, heartbeatType)
	if readErr != nil {
		return nil, readErr
	}
	proto.Reset(last)
	proto.Merge(last, found)
	return nil, err
}
