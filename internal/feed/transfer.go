package feed

import (
	"context"
	"errors"
	"time"

	"github.com/ashlar-dev/storage"
)

// A run whose source fell behind the history that is kept ends, but not each of its watches has fallen as far behind: a snapshot may
// have been read since. Such a watch goes on in the next run, as if it had been resumed from its cursor; where its own position is
// gone, too, the history says so.

// runPause is the least time between two moves of a watch, should runs not last.
const runPause = 100 * time.Millisecond

// errRunEnded is the error of a page of history that failed because the run has ended.
var errRunEnded = errors.New("the run has ended")

// leaveRun moves the watch to the next run, or ends it, because its run has ended.
func (w *watch[P]) leaveRun(ctx context.Context) error {
	if !errors.Is(w.run.err, storage.ErrCompacted) {
		return w.end(closedWith(w.run.err))
	}
	select {
	case <-time.After(time.Until(w.lastMoved.Add(runPause))):
	case <-w.lifetime.Done():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
	m, err := w.feed.Start(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		return ctx.Err() // the next call tries again
	case err != nil:
		return w.end(closedWith(err))
	case !w.enterRun(m.run):
		m.Release()
		return nil // it was closed
	}
	w.lastMoved = time.Now()
	w.closeHistory()
	w.pending, w.heldEvent, w.lastNode, w.joinAt, w.using, w.before = nil, nil, nil, nil, false, nil
	w.catching, w.follows, w.sound = true, false, false
	return nil
}

// enterRun makes r, on which there is a place for the watch, its run; false: the watch was closed.
func (w *watch[P]) enterRun(r *run[P]) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lifetime.Err() != nil {
		return false // Close has left the run that it saw
	}
	w.run.unfollow(w)
	w.run.release()
	w.run = r
	if len(w.proofs) > 0 {
		w.proofs = append(w.proofs[:0:0], r.prove()) // the old run answers nobody any more
	}
	return true
}

func (w *watch[P]) currentRun() *run[P] {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.run
}
