package reaper

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"github.com/ashlar-dev/storage/resourcepb"
)

// queue holds tombstones until they are to be looked at. A tombstone is in it, or with a worker, once, whatever the watch says of it.
type queue struct {
	mu         sync.Mutex
	tombstones map[string]*tombstone // by name, which is that of a uid; those with workers too
	heap       delayHeap
	wakeups    chan struct{} // holds a token if there may be something new to wait for
}

// due is a tombstone and the time at which it is to be looked at.
type due struct {
	at time.Time
	t  *tombstone
}

func newQueue() *queue {
	return &queue{tombstones: map[string]*tombstone{}, wakeups: make(chan struct{}, 1)}
}

// add puts a tombstone into the queue that is not known yet.
func (q *queue) add(t *tombstone, at time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	name := keyOf(t)
	if known := q.tombstones[name]; known != nil && known.id.GetUid() == t.id.GetUid() {
		return
	}
	q.tombstones[name] = t
	q.push(t, at)
}

// requeue puts a tombstone requeue that a worker had.
func (q *queue) requeue(t *tombstone, at time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.tombstones[keyOf(t)] == t {
		q.push(t, at)
	}
}

// remove forgets a tombstone that a worker had.
func (q *queue) remove(t *tombstone) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.tombstones[keyOf(t)] == t {
		delete(q.tombstones, keyOf(t))
	}
}

func (q *queue) push(t *tombstone, at time.Time) {
	heap.Push(&q.heap, due{at: at, t: t})
	q.wake()
}

// wake has one of those who wait look again.
func (q *queue) wake() {
	select {
	case q.wakeups <- struct{}{}:
	default:
	}
}

// next waits for a tombstone to look at.
func (q *queue) next(ctx context.Context) (*tombstone, error) {
	for {
		t, in := q.take(time.Now())
		if t != nil {
			return t, nil
		}
		timer := time.NewTimer(in)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		case <-q.wakeups:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// take returns a tombstone that is due, or else the time until one is.
func (q *queue) take(now time.Time) (*tombstone, time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.heap) == 0 {
		return nil, time.Hour
	}
	if in := q.heap[0].at.Sub(now); in > 0 {
		return nil, in
	}
	first := heap.Pop(&q.heap).(due)
	if len(q.heap) > 0 {
		q.wake() // for the next worker, which may be waiting for something later
	}
	return first.t, 0
}

// keyOf returns the key of a tombstone, all of which are of one type.
func keyOf(t *tombstone) string {
	return t.id.GetTenancy().GetPartition() + "\x00" + t.id.GetTenancy().GetNamespace() + "\x00" + t.id.GetName()
}

// delayHeap is a heap, the earliest first.
type delayHeap []due

func (d delayHeap) Len() int           { return len(d) }
func (d delayHeap) Less(i, j int) bool { return d[i].at.Before(d[j].at) }
func (d delayHeap) Swap(i, j int)      { d[i], d[j] = d[j], d[i] }

// Push implements heap.Interface.
func (d *delayHeap) Push(x any) { *d = append(*d, x.(due)) }

// Pop implements heap.Interface.
func (d *delayHeap) Pop() any {
	last := len(*d) - 1
	x := (*d)[last]
	(*d)[last] = due{}
	*d = (*d)[:last]
	return x
}

// tombstone is what the reaper knows of one. It belongs to the queue or to a worker.
type tombstone struct {
	id         *resourcepb.ID
	version    string
	owner      *resourcepb.ID // the deleted resource
	firstEmpty time.Time      // of the first look that found nothing; zero for none
	pause      time.Duration  // after which it is looked at again if it cannot be settled
}
