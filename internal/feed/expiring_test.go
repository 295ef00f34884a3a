package feed_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/feed"
	"github.com/ashlar-dev/storage/resourcepb"
)

// counted counts how often a snapshot is closed.
type counted struct {
	driver.Snapshot
	closed int
}

func (c *counted) Close() { c.closed++ }

func TestSnapshotThatNobodyReads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner := &counted{Snapshot: feed.SliceSnapshot([]*resourcepb.Resource{{}, {}, {}, {}})}
		s := feed.Expiring(inner)
		for range 3 {
			<-time.After(feed.SnapshotTTL - time.Second)
			if _, err := s.Next(t.Context()); err != nil {
				t.Fatalf("read from shortly before: %v", err)
			}
		}
		<-time.After(feed.SnapshotTTL + time.Second)
		synctest.Wait()
		if inner.closed != 1 {
			t.Errorf("closed %d times, expected once", inner.closed)
		}
		if _, err := s.Next(t.Context()); !errors.Is(err, storage.ErrCompacted) {
			t.Errorf("abandoned: %v, expected ErrCompacted", err)
		}
		s.Close()
		if inner.closed != 1 {
			t.Errorf("closed %d times, expected once", inner.closed)
		}
	})
}

func TestSnapshotThatIsClosedHoldsNoTimer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner := &counted{Snapshot: feed.SliceSnapshot(nil)}
		s := feed.Expiring(inner)
		s.Close()
		<-time.After(2 * feed.SnapshotTTL)
		synctest.Wait()
		if inner.closed != 1 {
			t.Errorf("closed %d times, expected once", inner.closed)
		}
	})
}
