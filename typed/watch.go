package typed

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Event is one event of a watch.
type Event[T any] struct {
	// Kind is the kind of the event.
	Kind EventKind
	// Old is the resource before the change; nil if it did not exist. For Deleted it is the last stored state. For Put a [Watch] sets it only with
	// [WithOld]. [Client.Follow] sets it if it has returned the resource before; for the deletion of a resource from an earlier run, or of one whose
	// last state cannot be decoded, it has only an ID.
	Old *Object[T]
	// New is the resource after the change; nil for Deleted.
	New *Object[T]
	// More reports that the next event belongs to the same commit.
	More bool
	// Cursor is a position behind the event, for [Client.WatchFrom] and [FollowOptions]. It is "" before Synced, because a snapshot cannot be
	// resumed, and if the backend is not a [storage.Resumer].
	Cursor string
}

// EventKind is the kind of an event.
type EventKind int

const (
	// Put is the event of a resource that was created or updated, or that is part of the snapshot.
	Put EventKind = iota + 1
	// Deleted is the event of a deleted resource.
	Deleted
	// Synced is the event at the end of the snapshot. [Client.Follow] returns it after each list.
	Synced
	// Progress is an event with only a cursor; see [FollowOptions].
	Progress
)

// Watch is a stream of events. Next must not be called concurrently; Cursor and Close may be called from any goroutine.
type Watch[T any] struct {
	codec  *Codec[T]
	watch  storage.Watch
	isLive bool // the snapshot was read
}

// WatchOption is an option of [Client.Watch] and [Client.WatchFrom].
type WatchOption func(*watchOptions)

type watchOptions struct{ old bool }

// WithOld makes a watch return the earlier state with each Put, if the backend keeps history (package history). Such a watch ends with
// [storage.ErrWatchClosed] if it lags behind and the history is compacted meanwhile.
func WithOld(o *watchOptions) { o.old = true }

// Watch returns a watch of the resources of a tenancy with a name prefix. Each tenancy unit may be "*". The watch returns the stored resources,
// then Synced, then every change. The context bounds only this call.
func (c *Client[T]) Watch(ctx context.Context, tenancy *resourcepb.Tenancy, prefix string, opts ...WatchOption) (*Watch[T], error) {
	w, err := c.backend.WatchList(ctx, storage.UnversionedTypeFrom(c.typ), c.tenancyOr(tenancy), prefix)
	return c.newWatch(w, err, false, opts)
}

// WatchFrom returns a watch of the changes after a cursor. It fails with [storage.ErrInvalid] if the backend is not a [storage.Resumer].
func (c *Client[T]) WatchFrom(ctx context.Context, tenancy *resourcepb.Tenancy, prefix, cursor string, opts ...WatchOption) (*Watch[T], error) {
	resumer, ok := storage.As[storage.Resumer](c.backend)
	if !ok {
		return nil, fmt.Errorf("%w: the backend cannot resume a watch", storage.ErrInvalid)
	}
	w, err := resumer.WatchFrom(ctx, storage.UnversionedTypeFrom(c.typ), c.tenancyOr(tenancy), prefix, cursor)
	return c.newWatch(w, err, true, opts)
}

func (c *Client[T]) newWatch(w storage.Watch, err error, isLive bool, opts []WatchOption) (*Watch[T], error) {
	if err != nil {
		return nil, err
	}
	var o watchOptions
	for _, opt := range opts {
		opt(&o)
	}
	if recaller, ok := w.(history.Recaller); ok && o.old {
		recaller.Recall()
	}
	return &Watch[T]{codec: c.codec, watch: w, isLive: isLive}, nil
}

// Next blocks until the next event and returns it. It fails like [storage.Watch]. It returns a [*PayloadError] for a resource that cannot be
// decoded, and skips the event; the next call continues behind it.
func (w *Watch[T]) Next(ctx context.Context) (Event[T], error) {
	for {
		ev, err := w.watch.Next(ctx)
		if err != nil {
			return Event[T]{}, err
		}
		out := Event[T]{More: ev.GetMore()}
		switch {
		case ev.GetUpsert() != nil:
			out.Kind = Put
			if ev.GetBefore() != nil {
				// The earlier state may have another payload type. Then the event has only the new object.
				out.Old, _ = w.codec.Object(ev.GetBefore())
			}
			out.New, err = w.codec.Object(ev.GetUpsert().GetResource())
		case ev.GetDelete() != nil:
			out.Kind = Deleted
			out.Old, err = w.codec.Object(ev.GetDelete().GetResource())
		case ev.GetEndOfSnapshot() != nil:
			out.Kind, w.isLive = Synced, true
		default:
			continue
		}
		if err != nil {
			return Event[T]{}, err
		}
		if w.isLive {
			out.Cursor = w.watch.Cursor()
		}
		return out, nil
	}
}

// Events returns the events of the watch as a sequence. A [*PayloadError] does not end the sequence; any other error of Next does, and so does the end
// of the loop. The watch remains open.
func (w *Watch[T]) Events(ctx context.Context) iter.Seq2[Event[T], error] {
	return func(yield func(Event[T], error) bool) {
		for {
			ev, err := w.Next(ctx)
			if !yield(ev, err) || err != nil && !errors.As(err, new(*PayloadError)) {
				return
			}
		}
	}
}

// Cursor returns a position behind the last event, for WatchFrom. See [storage.Watch].
func (w *Watch[T]) Cursor() string { return w.watch.Cursor() }

// Close ends the watch.
func (w *Watch[T]) Close() { w.watch.Close() }
