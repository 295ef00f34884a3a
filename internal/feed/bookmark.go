package feed

import (
	"context"

	"github.com/ashlar-dev/storage"
)

// bookmarker is a watch whose source is a Prover.
type bookmarker[P any] struct{ *watch[P] }

var _ storage.Bookmarker = bookmarker[int]{}

// Bookmark implements storage.Bookmarker.
func (b bookmarker[P]) Bookmark(ctx context.Context) error {
	w := b.watch
	request, err := w.addRequest(ctx)
	if err != nil {
		return err
	}
	for r := w.currentRun(); !w.expect(r, r.rounds.prove(), request); r = w.currentRun() {
		continue
	}
	return nil
}

// addRequest returns the number of a new request.
func (w *watch[P]) addRequest(ctx context.Context) (int64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.endErr != nil:
		return 0, w.endErr
	case w.feed.closed.Load():
		return 0, closedWith(storage.ErrClosed)
	case w.lifetime.Err() != nil:
		return 0, storage.ErrWatchClosed
	case ctx.Err() != nil:
		return 0, ctx.Err()
	}
	w.requests++
	return w.requests, nil
}

// expect registers a proof: the watch returns a bookmark event once it has reached p. It keeps the oldest proof, whose event later
// requests must not delay, and the newest, which answers all requests after the oldest. A concurrent request with a higher number may
// have registered a later proof already, which then answers this request as well, possibly before this call. It returns false if the watch
// has moved from r, the run of p, to another run.
func (w *watch[P]) expect(r *run[P], p *proof[P], request int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.endErr != nil || request <= w.answered {
		return true
	}
	if w.run != r {
		return false
	}
	added := expectedProof[P]{p, request}
	switch n := len(w.proofs); {
	case n > 0 && w.proofs[n-1].request > request:
	case n == 0 || n == 1 && w.proofs[0].proof != p:
		w.proofs = append(w.proofs, added)
	default:
		w.proofs[n-1] = added
	}
	w.wantsBookmark.Store(true)
	w.wakeUp()
	return true
}

// bookmarkDue reports whether a bookmark event is due. It is never due between two events of a commit.
func (w *watch[P]) bookmarkDue() bool {
	if !w.wantsBookmark.Load() || w.inCommit || !w.atConfirmed {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.proofs) > 0 && w.hasReached(w.proofs[0].proof)
}

// hasReached reports whether the watch has returned everything up to p. The caller holds mu.
func (w *watch[P]) hasReached(p *proof[P]) bool {
	select {
	case <-p.readyCh:
		return w.feed.prover.HasReached(w.at, p.at)
	default:
		return false
	}
}

// bookmark returns a bookmark for all requests that it answers.
func (w *watch[P]) bookmark() delivery[P] {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.proofs) > 0 && w.hasReached(w.proofs[0].proof) {
		w.answered, w.proofs = w.proofs[0].request, w.proofs[1:]
	}
	if len(w.proofs) == 0 {
		w.proofs = nil
		w.wantsBookmark.Store(false)
	}
	w.resumedFrom = ""
	return delivery[P]{kind: bookmark, at: w.at, cursor: w.feed.source.Cursor(w.at), request: w.answered}
}

// proofCh returns a channel that is closed when the next proof of the watch is ready; nil if the watch expects none.
func (w *watch[P]) proofCh() <-chan struct{} {
	if !w.wantsBookmark.Load() {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.proofs {
		select {
		case <-p.readyCh: // the watch now waits for events, or for the next proof
			if !w.inCommit && w.hasReached(p.proof) {
				return p.readyCh // the proof became ready after the last check, and possibly nothing else will wake the watch
			}
		default:
			return p.readyCh
		}
	}
	return nil
}
