package feed

import (
	"context"

	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/internal/codec"
)

// recaller is a watch that can return the previous state with each change.
type recaller[P any] struct{ bookmarker[P] }

var _ history.Recaller = recaller[int]{}

// Recall implements history.Recaller.
func (r recaller[P]) Recall() { r.watch.recalls.Store(true) }

// recall looks up the previous states of the next pending changes. The lookup runs in the background, so it continues between calls
// of Next.
func (w *watch[P]) recall(ctx context.Context) error {
	var events []*driver.Event[P]
	var ends []int // the index in pending after each of them
	for i, ev := range w.pending {
		if len(events) == w.lookupLimit {
			break
		}
		if w.wants(ev) && ev.Damage == nil {
			events, ends = append(events, ev), append(ends, i+1)
		}
	}
	if len(events) == 0 {
		w.previousCount = len(w.pending)
		return nil
	}
	if len(events) < w.lookupLimit {
		ends[len(ends)-1] = len(w.pending)
	}
	r, err := w.recalling.Do(ctx, func() (previousBatch[P], error) { return w.readPrevious(events, ends) })
	switch {
	case err == nil:
		return w.remember(r)
	case ctx.Err() != nil:
		return ctx.Err()
	default:
		return w.end(closedWith(err))
	}
}

// readPrevious looks up the previous states of some changes, or of the first of them. Its error ends the watch.
func (w *watch[P]) readPrevious(events []*driver.Event[P], ends []int) (r previousBatch[P], err error) {
	err = w.feed.Persist(w.lifetime, func(ctx context.Context) error {
		past, err := w.feed.opts.Before(ctx, events)
		r = previousBatch[P]{events, past, ends[len(events)-1]}
		events = events[:(len(events)+1)/2] // after a failure, fewer may arrive in time over a slow link
		return err
	})
	return r, err
}

// remember keeps the previous states of some events until the events are delivered.
func (w *watch[P]) remember(r previousBatch[P]) error {
	if w.before == nil {
		w.before = make(map[*driver.Event[P]]*driver.Version, len(r.versions))
	}
	bytes := 0
	for i, v := range r.versions {
		if v == nil {
			continue
		}
		previous := *v
		var err error
		if previous.Resource, err = v.Decode(); err != nil {
			return w.end(damageError(err))
		}
		bytes += codec.Size(previous.Resource)
		w.before[r.events[i]] = &previous
	}
	w.previousCount = r.until
	if bytes < driver.PageBytes {
		w.lookupLimit = min(2*len(r.events), maxPreviousReads)
	} else {
		w.lookupLimit = (len(r.events) + 1) / 2
	}
	return nil
}
