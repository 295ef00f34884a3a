package feed

import (
	"context"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/codec"
)

// recaller is a watch that can tell what was stored before each change.
type recaller[P any] struct{ bookmarker[P] }

var _ storage.Recaller = recaller[int]{}

// Recall implements storage.Recaller.
func (r recaller[P]) Recall() { r.watch.recalls.Store(true) }

// mostRecalled is how many changes are looked up at a time. What was stored before them is up to 1 MiB each, however small they are.
const mostRecalled = 64

// recollection is what was stored before some changes.
type recollection[P any] struct {
	events []*driver.Event[P]
	past   []*driver.Version
	until  int // how many of pending that takes care of
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
		w.recalled = len(w.pending)
		return nil
	}
	if len(events) < w.portion {
		ends[len(ends)-1] = len(w.pending)
	}
	r, err := w.recalling.Do(ctx, func() (recollection[P], error) { return w.lookUp(events, ends) })
	switch {
	case err == nil:
		return w.remember(r)
	case ctx.Err() != nil:
		return ctx.Err()
	default:
		return w.end(closedWith(err))
	}
}

// lookUp finds out what was stored before some changes, or the first of them. Its error ends the watch.
func (w *watch[P]) lookUp(events []*driver.Event[P], ends []int) (r recollection[P], err error) {
	err = w.persist(nil, func(ctx context.Context) error {
		past, err := w.feed.opts.Before(ctx, events)
		r = recollection[P]{events, past, ends[len(events)-1]}
		events = events[:(len(events)+1)/2] // less comes through a slow link in time, should this have failed
		return err
	})
	return r, err
}

// remember keeps what was stored before some events, until they are delivered.
func (w *watch[P]) remember(r recollection[P]) error {
	if w.before == nil {
		w.before = make(map[*driver.Event[P]]*driver.Version, len(r.past))
	}
	bytes := 0
	for i, v := range r.past {
		if v == nil {
			continue
		}
		own := *v
		var err error
		if own.Resource, err = v.Decode(); err != nil {
			return w.end(damaged(err))
		}
		bytes += codec.Size(own.Resource)
		w.before[r.events[i]] = &own
	}
	w.recalled = r.until
	if bytes < driver.PageBytes {
		w.portion = min(2*len(r.events), mostRecalled)
	} else {
		w.portion = (len(r.events) + 1) / 2
	}
	return nil
}
