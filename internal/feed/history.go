package feed

import (
	"context"
	"errors"

	"github.com/ashlar-dev/storage/driver"
)

// page is a page of history. After the last one the watch joins the log where it ended before that page was read.
type page[P any] struct {
	events []*driver.Event[P]
	end    P
	joinAt *node[P] // nil: there is another page
}

// readHistory takes a page of history. It is read in the background, so that it goes on from one Next to another.
func (w *watch[P]) readHistory(ctx context.Context) error {
	w.lastNode = nil // pins nothing while history is read
	if w.history == nil {
		w.history = w.feed.source.History(w.position(), &w.filter)
	}
	history := w.history
	p, err := w.reading.Do(ctx, func() (page[P], error) { return w.readPage(history) })
	switch {
	case err == nil:
		w.use(p.events, p.end)
		w.sound = true
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
	err = w.persist(w.run.doneCh, func(ctx context.Context) error {
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

// persist is Feed.Persist for as long as the watch lives.
func (w *watch[P]) persist(over <-chan struct{}, try func(ctx context.Context) error) error {
	return w.feed.Persist(w.lifetime, over, try)
}

func (w *watch[P]) closeHistory() {
	if w.history != nil {
		w.history.Close()
		w.history = nil
	}
}
