package feed

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/changes"
	"github.com/ashlar-dev/storage/internal/codec"
)

// recaller is a watch that can tell what was stored before each change.
type recaller[P any] struct{ bookmarker[P] }

var _ storage.Recaller = recaller[int]{}

// Recall implements storage.Recaller.
func (r recaller[P]) Recall() { r.watch.recalls.Store(true) }

// recall finds out what was stored before the changes at hand, trying again while the database is away.
func (w *watch[P]) recall(ctx context.Context) error {
	var events []*changes.Event[P]
	for _, ev := range w.pending {
		if w.wants(ev) && ev.Damage == nil {
			events = append(events, ev)
		}
	}
	if len(events) == 0 {
		w.recalled = true
		return nil
	}
	ctx, done := w.during(ctx)
	defer done()
	var firstFailure time.Time
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		past, err := w.feed.opts.Before(ctx, events)
		switch {
		case err == nil:
			return w.remember(events, past)
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, storage.ErrCompacted), errors.Is(err, storage.ErrClosed):
			return w.end(closedWith(err))
		case firstFailure.IsZero():
			firstFailure = time.Now()
		case time.Since(firstFailure) > w.feed.opts.Outage:
			return w.end(closedWith(fmt.Errorf("the database stayed away for %v: %w", w.feed.opts.Outage, err)))
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// remember keeps what was stored before some events, until they are delivered.
func (w *watch[P]) remember(events []*changes.Event[P], past []*changes.Version) error {
	if w.before == nil {
		w.before = make(map[*changes.Event[P]]*changes.Version, len(past))
	}
	for i, v := range past {
		if v == nil {
			continue
		}
		own := *v
		if v.Resource != nil {
			own.Resource = codec.Clone(v.Resource)
		} else {
			var err error
			if own.Resource, err = codec.DecodeAt(v.Key, v.Data, string(v.Version)); err != nil {
				return w.end(damaged(err))
			}
		}
		w.before[events[i]] = &own
	}
	w.recalled = true
	return nil
}
