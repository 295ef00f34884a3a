package typed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// FollowOptions configures [Client.Follow]. The zero value follows from the stored resources on.
type FollowOptions struct {
	// Cursor is the cursor of the last event that an earlier run has handled, "" for none. Follow returns the changes after it and no stored
	// resources, unless the history after it is gone.
	Cursor string
	// Known returns the ids of the resources that the program has from an earlier run. Follow calls it before it lists for the first time, and
	// then returns a deletion for each resource that is no longer stored. It may be nil if the program starts with an empty state.
	Known func(context.Context) ([]*resourcepb.ID, error)
	// Selector selects resources by their metadata. A resource that it no longer selects is returned as deleted. The database has no index of
	// metadata, so all resources with the prefix are read.
	Selector Selector
	// Report, if not nil, is called with the reason of each interruption, and with nil when Follow receives changes again.
	Report func(error)
	// Progress, if positive, makes Follow return an event of the kind Progress if the cursor has advanced for this time without an event.
	Progress time.Duration
}

// Follow returns the stored resources of a tenancy with a name prefix, then Synced, and then every change, without an end. It survives the ends of
// watches and outages of the database. Use it to keep a derived state: a cache, an index, another database.
//
// A watch that has ended is resumed behind its last event, so no change is missing or repeated. If the backend cannot resume it, because its history
// is compacted or it is not a [storage.Resumer], Follow lists the resources and returns the differences to the events before, and Synced: a Put
// for each new or changed resource, a Deleted for each one that is gone, and both for one that was deleted and created again. States in between
// are lost then. Follow keeps the last state of each resource in memory, encoded, to compare them and to return [Event].Old.
//
// To continue after a restart, store [Event].Cursor with the derived state whenever an event was handled, also if it is "". Pass it and the
// ids in the derived state to the next run ([FollowOptions]). If the cursor is unusable then, Follow lists and returns the differences to these ids.
// Without Known it ends with [storage.ErrCompacted] or [storage.ErrInvalid], because deletions would be missing.
//
// A resource that cannot be decoded yields a [*PayloadError], and the sequence continues. Any other error ends the sequence: the context's error,
// the error of Known, [storage.ErrInvalid] for an invalid filter, and [storage.ErrClosed]. Follow retries after all other errors, and calls
// Report with them. A [*storage.DamagedError] is among these: while a damaged resource is stored, the resources cannot be listed.
func (c *Client[T]) Follow(ctx context.Context, tenancy *resourcepb.Tenancy, prefix string, opts FollowOptions) iter.Seq2[Event[T], error] {
	return func(yield func(Event[T], error) bool) {
		f := &follower[T]{
			client: c, tenancy: c.tenancyOr(tenancy), prefix: prefix, opts: opts, cursor: opts.Cursor,
			emitter: emitter[T]{codec: c.codec, yield: yield, selector: opts.Selector, isComplete: opts.Cursor == "" && opts.Known == nil, states: map[key.Key]knownResource{}},
		}
		f.emitter.cursor, f.emitter.returnedAt = opts.Cursor, time.Now()
		if err := f.run(ctx); !errors.Is(err, errStopped) {
			yield(Event[T]{}, err)
		}
	}
}

// follower is a running Follow.
type follower[T any] struct {
	client        *Client[T]
	tenancy       *resourcepb.Tenancy
	prefix        string
	opts          FollowOptions
	emitter       emitter[T]
	cursor        string // behind the last event; "" to list
	compactErr    error  // the reason why the cursor cannot be resumed; nil if that is unknown
	isInterrupted bool
}

// The pauses between attempts to watch.
const (
	minRetryPause = 20 * time.Millisecond
	maxRetryPause = 5 * time.Second
)

// run watches again and again until an error is final.
func (f *follower[T]) run(ctx context.Context) error {
	for pause := minRetryPause; ; pause = min(2*pause, maxRetryPause) {
		hasChanges, err := f.watch(ctx)
		switch {
		case errors.Is(err, errStopped):
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, storage.ErrClosed), errors.Is(err, storage.ErrInvalid), errors.Is(err, errUnknownState):
			return err
		}
		if f.report(err); hasChanges {
			pause = minRetryPause // watches that end without a change must not cause continuous listings
		}
		if err := wait(ctx, pause); err != nil {
			return err
		}
	}
}

// report calls Report with an error, or with nil after an interruption.
func (f *follower[T]) report(err error) {
	if (err != nil || f.isInterrupted) && f.opts.Report != nil {
		f.opts.Report(err)
	}
	f.isInterrupted = err != nil
}

// watch opens one watch and returns its events until it ends. It reports whether there were changes.
func (f *follower[T]) watch(ctx context.Context) (hasChanges bool, err error) {
	w, err := f.resume(ctx)
	if err != nil {
		return false, err
	}
	if w == nil {
		if w, err = f.list(ctx); err != nil {
			return false, err
		}
	}
	defer w.Close()
	f.report(nil)
	for {
		ev, err := f.next(ctx, w)
		f.cursor = cmp.Or(w.Cursor(), f.cursor)
		if errors.Is(err, storage.ErrCompacted) {
			f.compactErr = err
		}
		if err != nil {
			return hasChanges, err
		}
		hasChanges = true
		if err := f.emitter.change(ev, f.cursor); err != nil {
			return hasChanges, err
		}
		if !ev.GetMore() {
			if err := f.emitter.endCommit(); err != nil {
				return hasChanges, err
			}
		}
	}
}

// errUnknownState reports that the program has resources that Follow does not know.
var errUnknownState = errors.New("the follower must list, and cannot return deletions because FollowOptions.Known is nil")

// resume opens a watch behind the last event. It returns nil if the resources must be listed.
func (f *follower[T]) resume(ctx context.Context) (storage.Watch, error) {
	if f.cursor == "" || f.compactErr != nil {
		return nil, f.prepareList(ctx, f.compactErr)
	}
	resumer, ok := storage.As[storage.Resumer](f.client.backend)
	if !ok {
		return nil, f.prepareList(ctx, fmt.Errorf("%w: the backend cannot resume a watch", storage.ErrInvalid))
	}
	w, err := resumer.WatchFrom(ctx, storage.UnversionedTypeFrom(f.client.typ), f.tenancy, f.prefix, f.cursor)
	if errors.Is(err, storage.ErrCompacted) || errors.Is(err, storage.ErrInvalid) {
		return nil, f.prepareList(ctx, err)
	}
	return w, err
}

// prepareList completes the set of known resources before the first list. cause is the reason why a watch cannot be resumed; nil if there was no
// cursor.
func (f *follower[T]) prepareList(ctx context.Context, cause error) error {
	if f.emitter.isComplete {
		return nil
	}
	if f.opts.Known == nil {
		return fmt.Errorf("%w: %w", errUnknownState, cause)
	}
	ids, err := f.opts.Known(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", errUnknownState, err)
	}
	f.emitter.add(ids)
	f.emitter.isComplete = true
	return nil
}

// list opens a watch, and returns the differences between its snapshot and the known resources.
func (f *follower[T]) list(ctx context.Context) (storage.Watch, error) {
	f.cursor, f.compactErr = "", nil
	w, err := f.client.backend.WatchList(ctx, storage.UnversionedTypeFrom(f.client.typ), f.tenancy, f.prefix)
	if err != nil {
		return nil, err
	}
	if err := f.emitter.endCommit(); err != nil {
		w.Close()
		return nil, err
	}
	listed := map[key.Key]bool{}
	for {
		ev, err := w.Next(ctx)
		if err == nil && ev.GetEndOfSnapshot() != nil {
			break
		}
		if res := ev.GetUpsert().GetResource(); err == nil && res != nil {
			listed[key.Of(res.GetId())] = true
			err = f.emitter.put(res, Event[T]{})
		}
		if err != nil {
			w.Close()
			return nil, err
		}
	}
	if err := f.emitter.deleteExcept(listed); err != nil {
		w.Close()
		return nil, err
	}
	f.cursor = w.Cursor()
	if err := f.emitter.send(Event[T]{Kind: Synced, Cursor: f.cursor}, nil); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// next returns the next event of a watch. While there is none for the program, it returns progress.
func (f *follower[T]) next(ctx context.Context, w storage.Watch) (*resourcepb.WatchEvent, error) {
	for f.opts.Progress > 0 && f.emitter.heldEvent == nil {
		waiting, cancel := context.WithDeadline(ctx, f.emitter.returnedAt.Add(f.opts.Progress))
		ev, err := w.Next(waiting)
		isIdle := err != nil && waiting.Err() != nil && ctx.Err() == nil && errors.Is(err, waiting.Err())
		if cancel(); !isIdle {
			return ev, err
		}
		f.emitter.returnedAt = time.Now()
		if at := w.Cursor(); at != "" && at != f.emitter.cursor {
			f.cursor = at
			if err := f.emitter.send(Event[T]{Kind: Progress, Cursor: at}, nil); err != nil {
				return nil, err
			}
		}
	}
	return w.Next(ctx)
}
