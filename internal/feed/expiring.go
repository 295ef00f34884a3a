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
	e := &expiring{snapshot: snapshot}
	e.timer = time.AfterFunc(SnapshotTTL, e.expire)
	return e
}

type expiring struct {
	timer    *time.Timer
	mu       sync.Mutex
	snapshot driver.Snapshot // nil once freed
}

var errExpired = fmt.Errorf("%w: the snapshot was not read for %v", storage.ErrCompacted, SnapshotTTL)

// Next implements driver.Snapshot.
func (e *expiring) Next(ctx context.Context) (*resourcepb.Resource, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.snapshot == nil {
		return nil, errExpired
	}
	e.timer.Stop() // during the read
	defer e.timer.Reset(SnapshotTTL)
	return e.snapshot.Next(ctx)
}

func (e *expiring) expire() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.snapshot != nil {
		e.snapshot.Close()
		e.snapshot = nil
	}
}

// Close implements driver.Snapshot.
func (e *expiring) Close() {
	e.timer.Stop()
	e.expire()
}
