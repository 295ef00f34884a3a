// Package queue is a queue of keys with work: each key is queued once, runs on one worker at a time, and is retried with growing delays.
//
// # States of a key
//
// A key is idle, ready, delayed or running. Adding an idle or delayed key makes it ready. Adding a ready key does nothing. Adding a running
// key makes it ready again as soon as its run has ended, so an event during a run is never lost.
//
// # Order
//
// Ready keys are in two first-in-first-out lists: normal keys, and low keys, such as the objects that exist when a program starts. Normal keys
// are first. But if the first low key has waited for LowWait, every second key is a low one: n low keys are finished after at most 2n keys,
// however many normal keys arrive, and normal keys keep half of the workers.
package queue

import (
	"iter"
	"math"
	"slices"
	"sync"
	"time"
)

// Queue holds keys with work. It is safe for concurrent use.
type Queue[K comparable] struct {
	opts  Options
	start time.Time // origin of all times

	mu      sync.Mutex
	ready   sync.Cond // signals a ready key, or the end
	items   map[K]*item[K]
	normal  fifo[K]
	low     fifo[K]
	delays  delayHeap[K]
	timer   *time.Timer // fires when the first delayed key is due; nil if there was none
	running []*item[K]  // few: one for each worker
	tookLow bool        // the last key was a low one
	closed  bool
}

// New returns an empty queue.
func New[K comparable](opts Options) *Queue[K] {
	if opts.BaseDelay <= 0 {
		opts.BaseDelay = 5 * time.Millisecond
	}
	if opts.MaxDelay <= 0 {
		opts.MaxDelay = 1000 * time.Second
	}
	if opts.LowWait <= 0 {
		opts.LowWait = 5 * time.Second
	}
	q := &Queue[K]{opts: opts, start: time.Now(), items: map[K]*item[K]{}}
	q.ready.L = &q.mu
	return q
}

// Add makes a key ready. It does nothing after Close.
func (q *Queue[K]) Add(k K) { q.add([]K{k}, false) }

// AddLow makes a key ready with low priority. It does not lower the priority of a ready key.
func (q *Queue[K]) AddLow(k K) { q.add([]K{k}, true) }

// AddAllLow is AddLow for a sequence of keys. It takes the lock once for several keys. count is their expected number.
func (q *Queue[K]) AddAllLow(count int, keys iter.Seq[K]) {
	q.reserve(count)
	batch := make([]K, 0, addBatch)
	for k := range keys {
		if batch = append(batch, k); len(batch) == addBatch {
			q.add(batch, true)
			batch = batch[:0]
		}
	}
	q.add(batch, true)
}

// reserve allocates memory for a number of keys, which an empty queue is about to get: each may be delayed later.
func (q *Queue[K]) reserve(count int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.items) == 0 {
		q.items = make(map[K]*item[K], count)
		q.low.entries = slices.Grow(q.low.entries, count)
		q.delays = slices.Grow(q.delays, count)
	}
}

// addBatch is the number of keys that AddAllLow adds at once.
const addBatch = 256

func (q *Queue[K]) add(keys []K, low bool) {
	now := q.now()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	for i := range keys {
		q.addKey(keys[i], low, now)
	}
}

// addKey makes a key ready. The caller holds the lock.
func (q *Queue[K]) addKey(k K, low bool, now time.Duration) {
	it := q.items[k]
	if it == nil {
		it = &item[K]{key: k, heapIndex: -1}
		q.items[k] = it
	}
	switch {
	case it.isRunning:
		it.isLow = low && (it.isLow || !it.isDirty)
		it.isDirty = true
	case it.ticket == 0:
		q.delays.remove(it)
		q.push(it, low, now)
	case it.isLow && !low: // an event raises the key; its entry in the low list becomes void
		q.low.voids++
		q.push(it, false, now)
	}
}

// now returns the time since the start of the queue.
func (q *Queue[K]) now() time.Duration { return time.Since(q.start) }

// AddDelayed makes all delayed keys ready with low priority, and running keys after their runs.
func (q *Queue[K]) AddDelayed() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	now := q.now()
	for _, it := range q.items {
		switch {
		case it.isRunning && !it.isDirty:
			it.isDirty, it.isLow = true, true
		case it.heapIndex >= 0:
			q.delays.remove(it)
			q.push(it, true, now)
		}
	}
}

// push appends an item to a list. The caller holds the lock.
func (q *Queue[K]) push(it *item[K], low bool, now time.Duration) {
	it.isLow = low
	list := &q.normal
	if low {
		list = &q.low
	}
	list.push(it, now)
	q.ready.Signal()
}

// Get blocks until a key is ready and returns it. It returns false after Close. The caller must call Done with the key.
func (q *Queue[K]) Get() (k K, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.closed {
		if it := q.take(); it != nil {
			it.ticket, it.isRunning, it.isDirty = 0, true, false
			q.running = append(q.running, it)
			return it.key, true
		}
		q.ready.Wait()
	}
	return k, false
}

// take removes the next item from its list. The caller holds the lock.
func (q *Queue[K]) take() *item[K] {
	since, hasLow := q.low.head()
	takesLow := hasLow && (!q.normal.skip() || !q.tookLow && q.now()-since >= q.opts.LowWait)
	q.tookLow = takesLow
	if takesLow {
		return q.low.pop()
	}
	return q.normal.pop()
}

// schedule sets the timer for the first delayed item. The caller holds the lock.
func (q *Queue[K]) schedule(now time.Duration) {
	if len(q.delays) == 0 {
		return
	}
	in := q.delays[0].dueAt - now
	if q.timer == nil {
		q.timer = time.AfterFunc(in, q.release)
		return
	}
	q.timer.Reset(in)
}

// release makes the due items ready. The timer may be early: the item that it was set for may have left the delayed ones.
func (q *Queue[K]) release() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	now := q.now()
	for len(q.delays) > 0 && q.delays[0].dueAt <= now {
		it := q.delays[0]
		q.delays.remove(it)
		q.push(it, it.isLow, now)
	}
	q.schedule(now)
}

// Outcome is the result of a run.
type Outcome struct {
	// Failed delays the next run by the back-off of the key. Otherwise the back-off starts anew.
	Failed bool
	// After, if positive and Failed is not set, is the delay of the next run.
	After time.Duration
	// Low gives the delayed run low priority.
	Low bool
}

// Done ends the run of a key. The outcome replaces every earlier plan for the key. If the key was added during the run, it is ready at once; a
// failure counts nevertheless.
func (q *Queue[K]) Done(k K, o Outcome) {
	now := q.now()
	q.mu.Lock()
	defer q.mu.Unlock()
	it := q.endRun(k)
	if it == nil {
		return
	}
	delay := min(o.After, math.MaxInt64-now) // the time of the next run does not overflow
	if o.Failed {
		it.failures = min(it.failures+1, maxFailures)
		delay = q.opts.backoff(it.failures)
	} else {
		it.failures = 0
	}
	switch {
	case q.closed:
		delete(q.items, k)
	case it.isDirty:
		q.push(it, it.isLow, now)
	case delay > 0:
		it.isLow = o.Low
		it.dueAt = now + delay
		if q.delays.add(it); it.heapIndex == 0 {
			q.schedule(now)
		}
	default:
		delete(q.items, k)
	}
}

// endRun removes a key from the running ones and returns its item; nil if it does not run. The caller holds the lock.
func (q *Queue[K]) endRun(k K) *item[K] {
	// The list is much smaller than the map, which would have to fetch the item from main memory.
	n := slices.IndexFunc(q.running, func(it *item[K]) bool { return it.key == k })
	if n < 0 {
		return nil
	}
	it, last := q.running[n], len(q.running)-1
	q.running[n], q.running[last] = q.running[last], nil
	q.running = q.running[:last]
	it.isRunning = false
	return it
}

// Drop removes the keys that match, except running ones: these are not run again before they are added again.
func (q *Queue[K]) Drop(match func(K) bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for k, it := range q.items {
		switch {
		case !match(k):
		case it.isRunning:
			it.isDirty = false
		default:
			q.delays.remove(it)
			if it.ticket != 0 && it.isLow {
				q.low.voids++
			} else if it.ticket != 0 {
				q.normal.voids++
			}
			it.ticket = 0
			delete(q.items, k)
		}
	}
}

// Close ends the queue: Get returns false, and added keys are ignored. Running keys are not affected.
func (q *Queue[K]) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	if q.timer != nil {
		q.timer.Stop()
	}
	q.ready.Broadcast()
}

// Stats describes a queue.
type Stats struct {
	// Normal and Low are the numbers of ready keys, Delayed and Running of the others.
	Normal, Low, Delayed, Running int
	// Oldest is the time that the longest waiting ready key has waited.
	Oldest time.Duration
}

// Stats returns the state of the queue.
func (q *Queue[K]) Stats() Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := Stats{Normal: q.normal.len(), Low: q.low.len(), Delayed: len(q.delays), Running: len(q.running)}
	now := q.now()
	for _, list := range []*fifo[K]{&q.normal, &q.low} {
		if since, ok := list.head(); ok {
			s.Oldest = max(s.Oldest, now-since)
		}
	}
	return s
}
