package feed

import (
	"context"

	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/internal/codec"
)

// recaller is a watch that can tell what was stored before each change.
type recaller[P any] struct{ bookmarker[P] }

var _ history.Recaller = recaller[int]{}

// Recall implements history.Recaller.
func (r recaller[P]) Recall() { r.watch.recalls.Store(true) }

// maxPreviousReads is how many changes are looked up at a time. What was stored before them is up to 1 MiB each, however small they are.
const maxPreviousReads = 64

// previousBatch is what was stored before some changes.
type previousBatch[P any] struct {
	events   []*driver.Event[P]
	versions []*driver.Version
	until    int // how many of pending that takes care of
}

// recall finds out what was stored before the next changes at hand. It does so in the background, so that it goes on from one Next to
// another.
func (w *watch[P]) recall(ctx context.Context) error {
	var events []*driver.Event[P]
	var ends []int // after each of them
	for i, ev := range w.pending {
		if len(events) == w.portion {
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
	if len(events) < w.portion {
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

// readPrevious finds out what was stored before some changes, or the first of them. Its error ends the watch.
func (w *watch[P]) readPrevious(events []*driver.Event[P], ends []int) (r previousBatch[P], err error) {
	err = w.persist(nil, func(ctx context.Context) error {
		past, err := w.feed.opts.Before(ctx, events)
		r = previousBatch[P]{events, past, ends[len(events)-1]}
		events = events[:(len(events)+1)/2] // less comes through a slow link in time, should this have failed
		return err
	})
	return r, err
}

// remember keeps what was stored before some events, until they are delivered.
func (w *watch[P]) remember(r previousBatch[P]) error {
	if w.before == nil {
		w.before = make(map[*driver.Event[P]]*driver.Version, len(r.versions))
	}
	bytes := 0
	for i, v := range r.versions {
		if v == nil {
			continue
		}
		own := *v
		var err error
		if own.Resource, err = v.Decode(); err != nil {
			return w.end(damageError(err))
		}
		bytes += codec.Size(own.Resource)
		w.before[r.events[i]] = &own
	}
	w.previousCount = r.until
	if bytes < driver.PageBytes {
		w.portion = min(2*len(r.events), maxPreviousReads)
	} else {
		w.portion = (len(r.events) + 1) / 2
	}
	return nil
}
