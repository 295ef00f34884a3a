package expiry

import (
	"container/heap"
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/resourcepb"
)

// entry is a version with a time to live.
type entry struct {
	id       *resourcepb.ID
	version  string
	deadline time.Time // the end of the time to live
	dueAt    time.Time // the next attempt to delete
	pause    time.Duration
	index    int // in the heap, -1 while the deletion is attempted
}

// queue holds the newest observed version of each resource with a time to live.
type queue struct {
	mu       sync.Mutex
	entries  map[key.Key]*entry
	heap     dueHeap
	late     map[*entry]struct{} // entries whose deletion was attempted
	changeCh chan struct{}       // has a token after the heap has changed
}

// The pauses after a failure: before the next attempt to delete a resource, or to watch the store.
const (
	minPause = 250 * time.Millisecond
	maxPause = time.Minute
)

func newQueue() *queue {
	return &queue{entries: map[key.Key]*entry{}, late: map[*entry]struct{}{}, changeCh: make(chan struct{}, 1)}
}

// maxSpread bounds the random delay of a deletion.
const maxSpread = time.Second

// observe starts the time to live of a version, unless the version was observed before. A ttl of 0 is none.
func (q *queue) observe(res *resourcepb.Resource, ttl time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.start(res, ttl)
}

// replace is observe unless an entry was replaced meanwhile.
func (q *queue) replace(e *entry, res *resourcepb.Resource, ttl time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.entries[key.Of(e.id)] == e {
		q.start(res, ttl)
	}
}

// start is observe. The caller holds the lock.
func (q *queue) start(res *resourcepb.Resource, ttl time.Duration) {
	k := key.Of(res.GetId())
	if known := q.entries[k]; known != nil && known.version == res.GetVersion() {
		return
	}
	q.drop(k)
	if ttl <= 0 {
		return
	}
	e := &entry{id: codec.CloneID(res.GetId()), version: res.GetVersion(), deadline: time.Now().Add(ttl), pause: minPause}
	e.dueAt = e.deadline.Add(rand.N(min(ttl/10, maxSpread) + 1))
	q.entries[k] = e
	q.push(e)
}

// remove forgets the resource of a key.
func (q *queue) remove(k key.Key) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.drop(k)
}

// keepOnly forgets the resources of all other keys.
func (q *queue) keepOnly(keys map[key.Key]bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for k := range q.entries {
		if !keys[k] {
			q.drop(k)
		}
	}
}

// drop forgets the resource of a key. The caller holds the lock.
func (q *queue) drop(k key.Key) {
	e := q.entries[k]
	if e == nil {
		return
	}
	if e.index >= 0 {
		heap.Remove(&q.heap, e.index)
	}
	delete(q.entries, k)
	delete(q.late, e)
}

// finish forgets an entry whose resource was deleted.
func (q *queue) finish(e *entry) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if k := key.Of(e.id); q.entries[k] == e {
		q.drop(k)
	}
}

// retry delays an entry whose resource was not deleted, unless it was replaced meanwhile.
func (q *queue) retry(e *entry) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.entries[key.Of(e.id)] != e {
		return
	}
	e.dueAt = time.Now().Add(e.pause)
	e.pause = min(2*e.pause, maxPause)
	q.push(e)
}

// push adds an entry to the heap and wakes next. The caller holds the lock.
func (q *queue) push(e *entry) {
	heap.Push(&q.heap, e)
	select {
	case q.changeCh <- struct{}{}:
	default:
	}
}

// next blocks until an entry is due and returns it.
func (q *queue) next(ctx context.Context) (*entry, error) {
	for {
		e, in := q.take(time.Now())
		if e != nil {
			return e, nil
		}
		timer := time.NewTimer(in)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		case <-q.changeCh:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// take removes a due entry from the heap, or returns the time until one may be due.
func (q *queue) take(now time.Time) (*entry, time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.heap) == 0 {
		return nil, time.Hour
	}
	if in := q.heap[0].dueAt.Sub(now); in > 0 {
		return nil, in
	}
	e := heap.Pop(&q.heap).(*entry)
	q.late[e] = struct{}{}
	return e, 0
}

// stats returns the number of entries, and how long the first deadline has passed.
func (q *queue) stats(now time.Time) (pending int, overdue time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for e := range q.late {
		overdue = max(overdue, now.Sub(e.deadline))
	}
	if len(q.heap) > 0 {
		overdue = max(overdue, now.Sub(q.heap[0].deadline))
	}
	return len(q.entries), overdue
}

// dueHeap is a heap with the earliest attempt first.
type dueHeap []*entry

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].dueAt.Before(h[j].dueAt) }
func (h dueHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push implements heap.Interface.
func (h *dueHeap) Push(x any) {
	e := x.(*entry)
	e.index = len(*h)
	*h = append(*h, e)
}

// Pop implements heap.Interface.
func (h *dueHeap) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last], e.index = nil, -1
	*h = (*h)[:last]
	return e
}
