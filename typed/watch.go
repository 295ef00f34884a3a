package typed

import (
	"context"
	"fmt"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Event is one step of a watch.
type Event[T any] struct {
	// Kind says what happened.
	Kind EventKind
	// Object is the resource as it is now or, for Deleted, as it was last stored.
	Object *Object[T]
	// Before is the resource as it was before a change; nil if nothing was stored, or the backend keeps no history.
	Before *Object[T]
	// More says that the next event belongs to the same commit.
	More bool
}

// EventKind is the kind of an event.
type EventKind int

const (
	// Put says that a resource was created or updated, or that it is part of the snapshot.
	Put EventKind = iota + 1
	// Deleted says that a resource is gone.
	Deleted
	// Synced says that the snapshot is complete.
	Synced
)

// Watch is a stream of events. Next is for one goroutine at a time; Cursor and Close may be called from any.
type Watch[T any] struct {
	codec *Codec[T]
	watch storage.Watch
}

// Watch returns a watch of the resources of a tenancy, each unit of which may be "*", whose names begin with a prefix: first those there
// are, then Synced, then every change. The context bounds the call only.
func (c *Client[T]) Watch(ctx context.Context, tenancy *resourcepb.Tenancy, prefix string) (*Watch[T], error) {
	w, err := c.backend.WatchList(ctx, storage.UnversionedTypeFrom(c.typ), tenancy, prefix)
	return c.newWatch(w, err)
}

// WatchFrom returns a watch of the changes after a cursor. It is [storage.ErrInvalid] where the backend is no [storage.Resumer].
func (c *Client[T]) WatchFrom(ctx context.Context, tenancy *resourcepb.Tenancy, prefix, cursor string) (*Watch[T], error) {
	resumer, ok := storage.As[storage.Resumer](c.backend)
	if !ok {
		return nil, fmt.Errorf("%w: the backend cannot resume a watch", storage.ErrInvalid)
	}
	w, err := resumer.WatchFrom(ctx, storage.UnversionedTypeFrom(c.typ), tenancy, prefix, cursor)
	return c.newWatch(w, err)
}

func (c *Client[T]) newWatch(w storage.Watch, err error) (*Watch[T], error) {
	if err != nil {
		return nil, err
	}
	if recaller, ok := w.(storage.Recaller); ok {
		recaller.Recall()
	}
	return &Watch[T]{codec: c.codec, watch: w}, nil
}

// Next returns the next event, and waits for it if need be. It fails as [storage.Watch] says. A resource that does not decode is a
// [*PayloadError]: its event is passed, and the next call goes on with the next one.
func (w *Watch[T]) Next(ctx context.Context) (Event[T], error) {
	for {
		ev, err := w.watch.Next(ctx)
		if err != nil {
			return Event[T]{}, err
		}
		out := Event[T]{More: ev.GetMore()}
		var res *resourcepb.Resource
		switch {
		case ev.GetUpsert() != nil:
			out.Kind, res = Put, ev.GetUpsert().GetResource()
		case ev.GetDelete() != nil:
			out.Kind, res = Deleted, ev.GetDelete().GetResource()
		case ev.GetEndOfSnapshot() != nil:
			out.Kind = Synced
			return out, nil
		default:
			continue
		}
		if out.Object, err = w.codec.Object(res); err != nil {
			return Event[T]{}, err
		}
		if ev.GetBefore() != nil {
			// What was stored before may be of another kind of payload: then only what is stored now is told.
			out.Before, _ = w.codec.Object(ev.GetBefore())
		}
		return out, nil
	}
}

// Cursor returns a position behind the last event, for WatchFrom; see [storage.Watch].
func (w *Watch[T]) Cursor() string { return w.watch.Cursor() }

// Close ends the watch.
func (w *Watch[T]) Close() { w.watch.Close() }
