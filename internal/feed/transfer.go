package feed

import (
	"context"
	"errors"
	"time"

	"github.com/ashlar-dev/storage"
)

// A run ends if its source fell behind the retained history. A watch of the run may have a newer position, for example because its
// snapshot was read later. Such a watch continues in the next run, as if resumed from its cursor. If its own position is discarded too,
// the read of history fails.

// runPause is the minimum time between two moves of a watch, in case runs fail repeatedly.
const runPause = 100 * time.Millisecond

// leaveRun moves the watch from its ended run to the next one, or ends the watch.
func (w *watch[P]) leaveRun(ctx context.Context) error {
	// The run of a moved store ends after the last change. A watch that is still in history has not returned that change.
	unread := w.inHistory && errors.Is(w.run.err, storage.ErrMoved)
	if !unread && !errors.Is(w.run.err, storage.ErrCompacted) {
		return w.end(closedWith(w.run.err))
	}
	select {
	case <-time.After(time.Until(w.lastMoved.Add(runPause))):
	case <-w.lifetime.Done():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
	start, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(w.lifetime, cancel)()
	m, err := w.feed.Start(start)
	switch {
	case err != nil && ctx.Err() != nil:
		return ctx.Err() // the next call retries
	case err != nil && w.lifetime.Err() != nil:
		return nil // the watch was closed
	case err != nil:
		return w.end(closedWith(err))
	case !w.enterRun(m.run):
		m.Release()
		return nil // the watch was closed
	}
	w.lastMoved = time.Now()
	w.closeHistory()
	w.pending, w.heldEvent, w.lastNode, w.joinAt, w.hasPending, w.before = nil, nil, nil, nil, false, nil
	w.inHistory, w.runWakes, w.atConfirmed = true, false, false
	return nil
}

// enterRun makes r the watch's run. The watch already has a place on r. It returns false if the watch was closed.
func (w *watch[P]) enterRun(r *run[P]) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lifetime.Err() != nil {
		return false // Close has released the old run
	}
	w.run.unfollow(&w.subscriber)
	w.run.release()
	w.run = r
	w.progress.begin(&r.publishedBytes)
	if len(w.proofs) > 0 {
		last := w.proofs[len(w.proofs)-1].request
		w.proofs = []expectedProof[P]{{r.rounds.prove(), last}} // the old run makes no more round trips
	}
	return true
}
