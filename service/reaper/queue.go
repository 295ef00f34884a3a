package reaper

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// queue holds tombstones until they are to be looked at. A tombstone is in it, or with a worker, once, whatever the watch says of it.
type queue struct {
	mu    sync.Mutex
	known map[string]*tombstone // by name, which is that of a uid; those with workers too
	due   dues
	woken chan struct{} // holds a token if there may be something new to wait for
}

// due is a tombstone and the time at which it is to be looked at.
type due struct {
	at time.Time
	t  *tombstone
}

func newQueue() *queue {
	return &queue{known: map[string]*tombstone{}, woken: make(chan struct{}, 1)}
}

// add puts a tombstone into the queue that is not known yet.
func (q *queue) add(t *tombstone, at time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	name := keyOf(t)
	if known := q.known[name]; known != nil && known.id.GetUid() == t.id.GetUid() {
		return
	}
	q.known[name] = t
	q.push(t, at)
}

// back puts a tombstone back that a worker had.
func (q *queue) back(t *tombstone, at time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.known[keyOf(t)] == t {
		q.push(t, at)
	}
}

// done forgets a tombstone that a worker had.
func (q *queue) done(t *tombstone) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.known[keyOf(t)] == t {
		delete(q.known, keyOf(t))
	}
}

func (q *queue) push(t *tombstone, at time.Time) {
	heap.Push(&q.due, due{at: at, t: t})
	q.wake()
}

// wake has one of those who wait look again.
func (q *queue) wake() {
	select {
	case q.woken <- struct{}{}:
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
		case <-q.woken:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// take returns a tombstone that is due, or else the time until one is.
func (q *queue) take(now time.Time) (*tombstone, time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.due) == 0 {
		return nil, time.Hour
	}
	if in := q.due[0].at.Sub(now); in > 0 {
		return nil, in
	}
	first := heap.Pop(&q.due).(due)
	if len(q.due) > 0 {
		q.wake() // for the next worker, which may be waiting for something later
	}
	return first.t, 0
}

// keyOf returns the key of a tombstone, all of which are of one type.
func keyOf(t *tombstone) string {
	return t.id.GetTenancy().GetPartition() + "\x00" + t.id.GetTenancy().GetNamespace() + "\x00" + t.id.GetName()
}

// dues is a heap, the earliest first.
type dues []due

func (d dues) Len() int           { return len(d) }
func (d dues) Less(i, j int) bool { return d[i].at.Before(d[j].at) }
func (d dues) Swap(i, j int)      { d[i], d[j] = d[j], d[i] }

// Push implements heap.Interface.
func (d *dues) Push(x any) { *d = append(*d, x.(due)) }

// Pop implements heap.Interface.
func (d *dues) Pop() any {
	last := len(*d) - 1
	x := (*d)[last]
	(*d)[last] = due{}
	*d = (*d)[:last]
	return x
}
