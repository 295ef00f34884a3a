package replica

import (
	"context"
	"fmt"

	"github.com/ashlar-dev/storage"
)

// barriers are the requests for proof of how far the copy is.
type barriers struct {
	haveBookmarks bool               // the watches are bookmarkers
	bookmarker    storage.Bookmarker // the watch; nil while there is none
	requestCount  int64              // counts the requests that were sent, and the lists
	inFlight      *barrier           // was sent, and is not answered
	next          *barrier           // is sent when flying is answered
}

// barrier is what callers wait for together.
type barrier struct {
	answerCh        chan struct{}
	err             error
	number          int64
	earlierBarriers []*barrier // earlier ones, which end with it
}

// finish lets go on who waits.
func (b *barrier) finish(err error) {
	for _, one := range b.earlierBarriers {
		one.finish(err)
	}
	b.err = err
	close(b.answerCh)
}

// Barrier waits until everything that was acknowledged, to anybody, before the call is in the Views made after it. Callers that wait share
// a request: one that comes while a request is under way shares the next one. It is [storage.ErrInvalid] where the watches of the backend
// are no [storage.Bookmarker].
func (r *Replica[V]) Barrier(ctx context.Context) error {
	r.mu.Lock()
	if !r.barriers.haveBookmarks {
		r.mu.Unlock()
		return fmt.Errorf("%w: the backend's watches are no Bookmarkers, so the copy cannot know how far it is", storage.ErrInvalid)
	}
	if r.endErr != nil {
		defer r.mu.Unlock()
		return r.endErr
	}
	if r.barriers.next == nil {
		r.barriers.next = &barrier{answerCh: make(chan struct{})}
	}
	mine := r.barriers.next
	r.barriers.send()
	r.mu.Unlock()
	select {
	case <-mine.answerCh:
		return mine.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// send sends the next request, if none is under way. The caller holds the replica's lock.
func (b *barriers) send() {
	if b.bookmarker == nil || b.inFlight != nil || b.next == nil {
		return
	}
	b.inFlight, b.next = b.next, nil
	b.requestCount++
	b.inFlight.number = b.requestCount
	// It notes the request and returns. If it fails the watch has ended, and what follows it sends the request again.
	_ = b.bookmarker.Bookmark(context.Background())
}

// setWatch says which setWatch answers from now on; nil while there is none. What was not answered is asked of it.
func (b *barriers) setWatch(w storage.Watch) {
	b.bookmarker, _ = w.(storage.Bookmarker)
	if b.inFlight != nil {
		if b.next == nil {
			b.next = b.inFlight
		} else {
			b.next.earlierBarriers = append(b.next.earlierBarriers, b.inFlight)
		}
		b.inFlight = nil
	}
	b.send()
}

// finishRequest ends the waiting for the request under way, and returns its number. The caller holds the replica's lock, and has applied all
// that came before the answer.
func (b *barriers) finishRequest() int64 {
	if b.inFlight == nil {
		return 0
	}
	number := b.inFlight.number
	b.inFlight.finish(nil)
	b.inFlight = nil
	b.send()
	return number
}

// end fails all requests.
func (b *barriers) end(err error) {
	for _, one := range []*barrier{b.inFlight, b.next} {
		if one != nil {
			one.finish(err)
		}
	}
	b.inFlight, b.next = nil, nil
}
