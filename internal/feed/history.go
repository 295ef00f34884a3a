package feed

import (
	"context"
	"errors"

	"github.com/ashlar-dev/storage/driver"
)

// readHistory takes a page of history. The page is read in the background, so the read continues between calls of Next.
func (w *watch[P]) readHistory(ctx context.Context) error {
	w.lastNode = nil // retains no node while history is read
	if w.history == nil {
		w.history = w.feed.source.History(w.position(), &w.filter)
	}
	history := w.history
	p, err := w.reading.Do(ctx, func() (page[P], error) { return w.readPage(history) })
	switch {
	case err == nil:
		w.use(p.events, p.end)
		w.atConfirmed = true
		if w.joinAt = p.joinAt; w.joinAt != nil {
			w.closeHistory()
		}
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, errRunEnded):
		return w.leaveRun(ctx)
	default:
		return w.end(closedWith(err))
	}
}

// readPage reads a page of history. Its error ends the watch, unless it is errRunEnded.
func (w *watch[P]) readPage(history driver.History[P]) (p page[P], err error) {
	err = w.feed.persist(w.lifetime, w.run.endCh, &w.failing, func(ctx context.Context) error {
		mark := w.run.end()
		events, end, more, err := history.Page(ctx, w.feed.opts.Page)
		p = page[P]{events, end, mark}
		if more {
			p.joinAt = nil
		}
		return err
	})
	return p, err
}
