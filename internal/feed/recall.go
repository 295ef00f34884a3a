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

// recallFirst is of how many changes a watch asks at once what was before them, until it knows how large that is: it may be far larger than
// the changes are.
const recallFirst = 16

// recall finds out what was stored before the next of the changes at hand, trying again while the database is away.
func (w *watch[P]) recall(ctx context.Context) error {
	var events []*changes.Event[P]
	rest := w.pending
	for len(rest) > 0 && len(events) < max(w.recallNext, recallFirst) {
		if w.wants(rest[0]) && rest[0].Damage == nil {
			events = append(events, rest[0])
		}
		rest = rest[1:]
	}
	if len(events) == 0 {
		w.unrecalled = len(rest)
		return nil
	}
	ctx, done := w.during(ctx)
	defer done()
	var firstFailure time.Time
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		past, err := w.feed.opts.Before(ctx, events)
		switch {
		case err == nil:
			return w.remember(events, past, len(rest))
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

// remember keeps what was stored before some events, until they are delivered; unrecalled is the number of changes behind them.
func (w *watch[P]) remember(events []*changes.Event[P], past []*changes.Version, unrecalled int) error {
	if w.before == nil {
		w.before = make(map[*changes.Event[P]]*changes.Version, len(past))
	}
	bytes := 0
	for i, v := range past {
		if v == nil {
			continue
		}
		own := *v
		own.Data = nil
		if v.Resource != nil {
			own.Resource = codec.Clone(v.Resource)
		} else {
			var err error
			if own.Resource, err = codec.DecodeAt(v.Key, v.Data, string(v.Version)); err != nil {
				return w.end(damaged(err))
			}
		}
		bytes += codec.Size(own.Resource)
		w.before[events[i]] = &own
	}
	w.unrecalled, w.recallNext = unrecalled, changes.PageBytes/(bytes/len(events)+1)
	return nil
}
