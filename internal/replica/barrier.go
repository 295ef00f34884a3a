package replica

import (
	"context"

	"github.com/ashlar-dev/storage"
)

// barriers are the requests for proof of the watch's progress. The replica's lock guards them.
type barriers struct {
	haveBookmarks bool               // the watches are bookmarkers
	bookmarker    storage.Bookmarker // the current watch; nil for none
	requestCount  int64              // number of requests sent, and of lists
	inFlight      *barrier           // sent, and not answered
	next          *barrier           // to be sent when inFlight is answered
}

// barrier is a request that several callers wait for.
type barrier struct {
	answerCh        chan struct{}
	err             error
	number          int64
	earlierBarriers []*barrier // requests to an earlier watch, which are answered together with this one
}

// finish wakes the waiting callers.
func (b *barrier) finish(err error) {
	for _, earlier := range b.earlierBarriers {
		earlier.finish(err)
	}
	b.err = err
	close(b.answerCh)
}

// request returns the next barrier, and sends it if none is in flight.
func (b *barriers) request() *barrier {
	if b.next == nil {
		b.next = &barrier{answerCh: make(chan struct{})}
	}
	requested := b.next
	b.send()
	return requested
}

// send sends the next request unless one is in flight.
func (b *barriers) send() {
	if b.bookmarker == nil || b.inFlight != nil || b.next == nil {
		return
	}
	b.inFlight, b.next = b.next, nil
	b.requestCount++
	b.inFlight.number = b.requestCount
	// Bookmark only records the request. If it fails, the watch has ended, and setWatch sends the request to the next watch.
	_ = b.bookmarker.Bookmark(context.Background())
}

// setWatch sets the watch that answers from now on, nil for none. Unanswered requests are sent to it.
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

// finishRequest answers the request in flight and returns its number. The caller has applied all changes that precede the answer.
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
	for _, request := range []*barrier{b.inFlight, b.next} {
		if request != nil {
			request.finish(err)
		}
	}
	b.inFlight, b.next = nil, nil
}
