package feed

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/resourcepb"
)

// SnapshotTTL is how long an unread snapshot is kept.
const SnapshotTTL = 5 * time.Minute

// Expiring returns a snapshot that is freed if it was not read for SnapshotTTL, because it may hold as much memory or disk space as
// the store. The watch then ends at its next step.
func Expiring(snapshot driver.Snapshot) driver.Snapshot {
	e := &expiring{snapshot: snapshot, lastRead: time.Now()}
	e.timer = time.AfterFunc(SnapshotTTL, e.expire)
	return e
}

type expiring struct {
	timer    *time.Timer
	mu       sync.Mutex
	snapshot driver.Snapshot // nil once freed
	lastRead time.Time
}

var errExpired = fmt.Errorf("%w: the snapshot was not read for %v", storage.ErrCompacted, SnapshotTTL)

// Next implements driver.Snapshot.
func (e *expiring) Next(ctx context.Context) (*resourcepb.Resource, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.snapshot == nil {
		return nil, errExpired
	}
	res, err := e.snapshot.Next(ctx)
	e.lastRead = time.Now()
	return res, err
}

// expire frees the snapshot, or waits for the rest of its time if it was read meanwhile.
func (e *expiring) expire() {
	e.mu.Lock() // a read that takes long is no abandoned snapshot
	defer e.mu.Unlock()
	if rest := SnapshotTTL - time.Since(e.lastRead); rest > 0 {
		e.timer.Reset(rest)
		return
	}
	e.free()
}

// free frees the snapshot. The caller holds the lock.
func (e *expiring) free() {
	if e.snapshot != nil {
		e.snapshot.Close()
		e.snapshot = nil
	}
}

// Close implements driver.Snapshot.
func (e *expiring) Close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lastRead = time.Time{} // a timer that has fired does not start again
	e.timer.Stop()
	e.free()
}
