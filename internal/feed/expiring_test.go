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

// countingSnapshot counts the calls of Close.
type countingSnapshot struct {
	driver.Snapshot
	closed int
}

func (c *countingSnapshot) Close() { c.closed++ }

func TestUnreadSnapshotExpires(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner := &countingSnapshot{Snapshot: feed.SliceSnapshot([]*resourcepb.Resource{{}, {}, {}, {}})}
		s := feed.Expiring(inner)
		for range 3 {
			<-time.After(feed.SnapshotTTL - time.Second)
			if _, err := s.Next(t.Context()); err != nil {
				t.Fatalf("a read shortly before the end: %v", err)
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

func TestClosedSnapshotHasNoTimer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner := &countingSnapshot{Snapshot: feed.SliceSnapshot(nil)}
		s := feed.Expiring(inner)
		s.Close()
		<-time.After(2 * feed.SnapshotTTL)
		synctest.Wait()
		if inner.closed != 1 {
			t.Errorf("closed %d times, expected once", inner.closed)
		}
	})
}
