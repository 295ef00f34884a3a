package reaper

import (
	"testing"
	"time"

	"github.com/ashlar-dev/storage/resourcepb"
)

// stone returns a tombstone with a name and a uid.
func stone(name, uid string) *tombstone {
	return &tombstone{id: &resourcepb.ID{Name: name, Uid: uid}}
}

// A queue has each tombstone once, and returns it from the time when it is due.
func TestQueueReturnsDueTombstones(t *testing.T) {
	t.Parallel()
	q, now := newQueue(), time.Now()
	first, newer := stone("a", "1"), stone("a", "2")
	q.add(first, now)
	q.add(stone("a", "1"), now) // such as one of another watch
	if got, _ := q.take(now.Add(-time.Second)); got != nil || q.size() != 1 {
		t.Errorf("before it is due: %v of %d, expected none of 1", got, q.size())
	}
	if got, _ := q.take(now); got != first {
		t.Errorf("the first tombstone is %v, expected %v", got, first)
	}
	if got, in := q.take(now); got != nil || in < time.Minute {
		t.Errorf("after the first tombstone: %v in %v, expected none", got, in)
	}
	q.add(newer, now)
	q.requeue(first, now)
	q.remove(first) // without effect on the newer one
	if got, _ := q.take(now); got != newer {
		t.Errorf("the newer tombstone is %v, expected %v", got, newer)
	}
	if got, _ := q.take(now); got != nil {
		t.Errorf("the replaced tombstone was requeued: %v", got)
	}
	q.requeue(newer, now)
	if got, _ := q.take(now); got != newer || q.size() != 1 {
		t.Errorf("requeued: %v of %d, expected %v of 1", got, q.size(), newer)
	}
	if q.remove(newer); q.size() != 0 {
		t.Errorf("%d tombstones remain", q.size())
	}
}

// A worker that takes a tombstone wakes another worker if there are more tombstones.
func TestQueueWakesNextWorker(t *testing.T) {
	t.Parallel()
	q, now := newQueue(), time.Now()
	q.add(stone("a", "1"), now)
	q.add(stone("b", "1"), now)
	<-q.wakeups
	q.take(now)
	if len(q.wakeups) != 1 {
		t.Error("one tombstone is left, and no worker is woken")
	}
	<-q.wakeups
	q.take(now)
	if len(q.wakeups) != 0 {
		t.Error("no tombstone is left, and a worker is woken")
	}
}
