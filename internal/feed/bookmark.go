package feed

import (
	"context"
	"sync"
	"time"

	"github.com/ashlar-dev/storage"
)

// bookmarker is a watch whose source is a Prover.
type bookmarker[P any] struct{ *watch[P] }

var _ storage.Bookmarker = bookmarker[int]{}

// offer returns the watch with the capabilities that its source has.
func (f *Feed[P]) offer(w *watch[P]) storage.Watch {
	switch {
	case f.prover == nil:
		return w
	case f.opts.Before == nil:
		return bookmarker[P]{w}
	}
	return recaller[P]{bookmarker[P]{w}}
}

// Bookmark implements storage.Bookmarker.
func (b bookmarker[P]) Bookmark(ctx context.Context) error {
	w := b.watch
	w.mu.Lock()
	ended := w.endErr
	w.mu.Unlock()
	switch {
	case ended != nil:
		return ended
	case w.feed.closed.Load():
		return closedWith(storage.ErrClosed)
	case w.lifetime.Err() != nil:
		return storage.ErrWatchClosed
	case ctx.Err() != nil:
		return ctx.Err()
	}
	for r := w.currentRun(); !w.expect(r, r.prove()); r = w.currentRun() {
		continue
	}
	return nil
}

// expect has a bookmark event come once the watch has reached what p proves. It keeps the oldest proof, so that the event for
// it is not put off by later requests, and the newest, which answers all requests after the oldest. false: the watch has changed to
// another run than r, of which p is.
func (w *watch[P]) expect(r *run[P], p *proof[P]) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.endErr != nil {
		return true
	}
	if w.run != r {
		return false
	}
	switch n := len(w.proofs); {
	case n == 0 || n == 1 && w.proofs[0] != p:
		w.proofs = append(w.proofs, p)
	case w.proofs[n-1] != p:
		w.proofs[n-1] = p
	}
	w.eager.Store(true)
	w.wakeUp()
	return true
}

// bookmarkDue reports whether a bookmark event is due. It never comes between two events of a commit.
func (w *watch[P]) bookmarkDue() bool {
	if !w.eager.Load() || w.open || !w.sound {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.proofs) > 0 && w.hasReached(w.proofs[0])
}

// hasReached reports whether the watch has returned everything up to p. The caller holds mu.
func (w *watch[P]) hasReached(p *proof[P]) bool {
	select {
	case <-p.doneCh:
		return w.feed.prover.Reached(w.at, p.at)
	default:
		return false
	}
}

// bookmark returns a bookmark, for all requests that it answers.
func (w *watch[P]) bookmark() delivery[P] {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.proofs) > 0 && w.hasReached(w.proofs[0]) {
		w.proofs = w.proofs[1:]
	}
	if len(w.proofs) == 0 {
		w.proofs = nil
		w.eager.Store(false)
	}
	w.resumedFrom = ""
	return delivery[P]{kind: bookmark, at: w.at, cursor: w.feed.source.Cursor(w.at)}
}

// proofCh is closed when the proof that the watch waits for is there; nil where there is none to wait for.
func (w *watch[P]) proofCh() <-chan struct{} {
	if !w.eager.Load() {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.proofs {
		select {
		case <-p.doneCh: // it waits for events now, or for the next proof
			if !w.open && w.hasReached(p) {
				return p.doneCh // the answer came after the last look at it, and nothing else may ever wake the watch
			}
		default:
			return p.doneCh
		}
	}
	return nil
}

// proof is an answer of Prover.Newest, or will be.
type proof[P any] struct {
	doneCh chan struct{} // closed when at is set
	at     P
}

// asking is the round trips of a run's proofs, one at a time.
type asking[P any] struct {
	mu    sync.Mutex
	next  *proof[P] // of the round trip that has not begun; nil: nobody waits for one
	going bool      // a goroutine is at it
}

// prove returns a proof of a round trip that has not begun yet.
func (r *run[P]) prove() *proof[P] {
	a := &r.asking
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.next == nil {
		a.next = &proof[P]{doneCh: make(chan struct{})}
	}
	p := a.next
	if a.going {
		return p
	}
	if leave, ok := r.feed.enter(); ok {
		a.going = true
		go func() {
			defer leave()
			for r.ask() {
				continue
			}
		}()
	}
	return p
}

// ask makes the next round trip, until it succeeds or the run ends. false: there was none to make.
func (r *run[P]) ask() bool {
	a := &r.asking
	a.mu.Lock()
	p := a.next
	a.next = nil
	if p == nil || r.lifetime.Err() != nil {
		a.going = false
		a.mu.Unlock()
		return false
	}
	a.mu.Unlock()
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		at, err := r.feed.prover.Newest(r.lifetime)
		if err == nil {
			p.at = at
			close(p.doneCh)
			return true
		}
		select {
		case <-time.After(pause):
		case <-r.lifetime.Done():
			return true
		}
	}
}
