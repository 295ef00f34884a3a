package reaper

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"github.com/ashlar-dev/storage/resourcepb"
)

// queue holds tombstones until they are due. A tombstone is in the queue or with a worker, once, even if the watch repeats it.
type queue struct {
	mu         sync.Mutex
	tombstones map[string]*tombstone // by key; includes those with workers
	heap       delayHeap
	wakeups    chan struct{} // has a token after the heap has changed
}

// due is a tombstone and the time when it is due.
type due struct {
	at time.Time
	t  *tombstone
}

func newQueue() *queue {
	return &queue{tombstones: map[string]*tombstone{}, wakeups: make(chan struct{}, 1)}
}

// add adds a tombstone unless the queue or a worker has it.
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

// requeue returns a tombstone from a worker to the queue.
func (q *queue) requeue(t *tombstone, at time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.tombstones[keyOf(t)] == t {
		q.push(t, at)
	}
}

// remove forgets a tombstone that a worker has processed.
func (q *queue) remove(t *tombstone) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.tombstones[keyOf(t)] == t {
		delete(q.tombstones, keyOf(t))
	}
}

// size returns the number of tombstones in the queue and with workers.
func (q *queue) size() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.tombstones)
}

func (q *queue) push(t *tombstone, at time.Time) {
	heap.Push(&q.heap, due{at: at, t: t})
	q.wake()
}

// wake unblocks one waiter, which then re-checks the queue.
func (q *queue) wake() {
	select {
	case q.wakeups <- struct{}{}:
	default:
	}
}

// next blocks until a tombstone is due and returns it.
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

// take returns a due tombstone, or the time until one is due.
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
		q.wake() // the next worker may be waiting for a later time
	}
	return first.t, 0
}

// keyOf returns the key of a tombstone. All tombstones have one type.
func keyOf(t *tombstone) string {
	return t.id.GetTenancy().GetPartition() + "\x00" + t.id.GetTenancy().GetNamespace() + "\x00" + t.id.GetName()
}

// delayHeap is a heap with the earliest time first.
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

// tombstone is the state of a tombstone. It belongs to the queue or to a worker.
type tombstone struct {
	id         *resourcepb.ID
	version    string
	owner      *resourcepb.ID // the deleted resource
	firstEmpty time.Time      // the time of the first check that found no children; zero for none
	pause      time.Duration  // before the next attempt
}
