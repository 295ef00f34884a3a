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

// SnapshotTTL is how long a snapshot that nobody reads from is held.
const SnapshotTTL = 5 * time.Minute

// Expiring is a snapshot that is freed when nobody has read from it for SnapshotTTL: what it holds, in memory or on disk, may be
// as large as the store. The watch ends at its next step.
func Expiring(snapshot driver.Snapshot) driver.Snapshot {
	e := &expiring{snapshot: snapshot}
	e.timer = time.AfterFunc(SnapshotTTL, e.expire)
	return e
}

type expiring struct {
	timer    *time.Timer
	mu       sync.Mutex
	snapshot driver.Snapshot // nil once it is freed
}

var errExpired = fmt.Errorf("%w: nobody has read from the snapshot for %v", storage.ErrCompacted, SnapshotTTL)

// Next implements driver.Snapshot.
func (e *expiring) Next(ctx context.Context) (*resourcepb.Resource, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.snapshot == nil {
		return nil, errExpired
	}
	e.timer.Stop() // while it is read from
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
