package sqlite

import (
	"slices"
	"sync"

	"github.com/ashlar-dev/storage"
)

// queue holds the requests that wait for the writer.
//
// Package batch would be the place for it, but its worker takes a batch before it does anything, where the writer first stands in line
// for the file, gives its turn up when another program writes, and can be stopped while it stands there. Its worker is also started
// for each lone call: measured, 6 allocations and 2 to 4 µs from call to answer, where the queue and the writer's goroutine take 1 and
// 1 µs. And a caller that carried out its own write could not leave when the disk hangs.
type queue struct {
	mu            sync.Mutex
	waiting       []*request
	closed        bool
	wake          chan struct{}  // holds a token when the queue may have something
	wakingCallers sync.WaitGroup // callers of the last batch that do not run again yet
}

func (q *queue) put(r *request) error {
	r.done = make(chan struct{})
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return storage.ErrClosed
	}
	q.waiting = append(q.waiting, r)
	if len(q.waiting) == 1 {
		select {
		case q.wake <- struct{}{}:
		default:
		}
	}
	return nil
}

// withdraw takes a request out of the queue, unless the writer has it already: then nobody waits for its caller any more.
func (q *queue) withdraw(r *request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if r.inBatch {
		q.wakingCallers.Done()
	} else if i := slices.Index(q.waiting, r); i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
}

func (q *queue) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting) == 0
}

// drain takes the next batch, appending it to batch.
func (q *queue) drain(batch []*request) []*request {
	q.mu.Lock()
	defer q.mu.Unlock()
	n, changes, bytes := 0, 0, 0
	for n < len(q.waiting) {
		changes += len(q.waiting[n].mutations)
		bytes += q.waiting[n].size()
		if n > 0 && (changes > batchChanges || bytes > batchBytes) {
			break
		}
		n++
	}
	for _, r := range q.waiting[:n] {
		r.inBatch = true
		q.wakingCallers.Add(1)
		batch = append(batch, r)
	}
	q.waiting = slices.Delete(q.waiting, 0, n)
	return batch
}

// close refuses what comes later and returns what waits.
func (q *queue) close() []*request {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	rest := q.waiting
	q.waiting = nil
	return rest
}
