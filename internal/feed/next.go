package feed

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Watch returns a watch that begins with a snapshot. The snapshot was read after the mark was made and contains the state at a
// position.
func (f *Feed[P]) Watch(m Mark[P], filter key.Filter, snapshot driver.Snapshot, at P) storage.Watch {
	w := f.newWatch(m.run, filter, at)
	w.snapshot, w.start, w.atConfirmed = snapshot, true, true
	w.lastNode = m.node
	return f.offer(w)
}

// Resume returns a watch of the changes after a position, whose text is cursor. It waits for the source to be ready, within ctx.
func (f *Feed[P]) Resume(ctx context.Context, filter key.Filter, from P, cursor string) (storage.Watch, error) {
	m, err := f.Start(ctx)
	if err != nil {
		return nil, err
	}
	w := f.newWatch(m.run, filter, from)
	w.inHistory = true
	w.resumedFrom = cursor
	return f.offer(w), nil
}

// offer returns the watch with the capabilities of its source.
func (f *Feed[P]) offer(w *watch[P]) storage.Watch {
	switch {
	case f.prover == nil:
		return w
	case f.opts.Before == nil:
		return bookmarker[P]{w}
	}
	return recaller[P]{bookmarker[P]{w}}
}

// Next implements storage.Watch.
func (w *watch[P]) Next(ctx context.Context) (*resourcepb.WatchEvent, error) {
	d, err := w.deliver(ctx)
	if err != nil {
		return nil, err
	}
	return d.watchEvent(), nil
}

// deliver returns the next delivery and waits until there is one.
func (w *watch[P]) deliver(ctx context.Context) (delivery[P], error) {
	w.next.Lock()
	defer w.freeIfClosed()
	defer w.next.Unlock()
	for {
		if w.err != nil {
			return delivery[P]{}, w.err
		}
		if w.lifetime.Err() != nil || w.feed.closed.Load() {
			return delivery[P]{}, w.end(w.closedErr())
		}
		if err := ctx.Err(); err != nil {
			return delivery[P]{}, err
		}
		d, err := w.step(ctx)
		switch {
		case d.kind == change, d.kind == snapshotEnd:
			return d, nil // the cursor has passed it, so this Next precedes a simultaneous Close
		case d.kind == nothing && err == nil:
		case w.lifetime.Err() != nil:
			return delivery[P]{}, w.end(w.closedErr())
		default:
			return d, err
		}
	}
}

// step makes progress: it returns a delivery, an error, or neither.
func (w *watch[P]) step(ctx context.Context) (d delivery[P], err error) {
	switch {
	case w.snapshot != nil:
		return w.fromSnapshot(ctx)
	case w.bookmarkDue():
		return w.bookmark(), nil
	case w.hasPending && w.recalls.Load() && w.previousCount == 0 && len(w.pending) > 0:
		return d, w.recall(ctx)
	case w.hasPending:
		return w.fromPending()
	case w.inHistory && w.joinAt != nil:
		w.inHistory, w.lastNode, w.joinAt = false, w.joinAt, nil
		return d, nil
	case w.inHistory:
		return d, w.readHistory(ctx)
	default:
		return d, w.follow(ctx)
	}
}

func (w *watch[P]) fromSnapshot(ctx context.Context) (d delivery[P], err error) {
	ctx = w.joinCtx.join(ctx, w.lifetime)
	res, err := w.snapshot.Next(ctx)
	damaged := (*storage.DamagedError)(nil)
	if errors.As(err, &damaged) && w.skipsDamage(storage.UnversionedTypeFrom(damaged.ID.GetType())) {
		return d, nil
	}
	switch {
	case errors.Is(err, io.EOF):
		w.closeSnapshot()
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.lifetime.Err() != nil {
			return d, nil // closed: the cursor stays inside the snapshot
		}
		w.start = false
		return delivery[P]{kind: snapshotEnd}, nil
	case err != nil && ctx.Err() != nil && damaged == nil: // the next call would continue behind a damaged resource
		return d, ctx.Err()
	case err != nil:
		return d, w.end(closedWith(fmt.Errorf("read the snapshot: %w", err)))
	}
	return delivery[P]{kind: inSnapshot, resource: res}, nil
}

// follow takes the log's next node and waits until there is one.
func (w *watch[P]) follow(ctx context.Context) error {
	w.progress.reach(w.lastNode.bytes)
	n := w.lastNode.next.Load()
	if n == nil && w.lastNode.batch.Load() != nil {
		if !w.runWakes {
			// A node may have arrived before the registration, so check again.
			w.runWakes = true
			w.run.follow(&w.subscriber)
			return nil
		}
		select {
		case <-w.wake:
		case <-w.proofCh():
		case <-w.lifetime.Done():
		case <-ctx.Done():
			return ctx.Err()
		case <-w.run.endCh:
			// Events published before the end of the run are still delivered.
			if w.lastNode.next.Load() == nil && w.lastNode.batch.Load() != nil {
				return w.leaveRun(ctx)
			}
		}
		return nil
	}
	var b *batch[P]
	if n != nil {
		b = n.batch.Load()
	}
	if b == nil {
		w.inHistory, w.heldEvent = true, nil // history returns the held event again
		clear(w.before)
		return nil
	}
	w.lastNode = n
	w.use(b.events, b.end)
	return nil
}
