package moved

import (
	"context"
	"errors"
	"sync"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// filter is the filter of a watch.
type filter struct {
	typ        storage.UnversionedType
	tenancy    *resourcepb.Tenancy
	namePrefix string
}

// watch is a watch that continues in the store to which its store has moved.
type watch struct {
	b      *Backend
	filter filter

	next sync.Mutex // held by Next

	mu      sync.Mutex
	store   storage.Backend
	current storage.Watch
	skips   func(storage.UnversionedType) bool // of SkipDamage, nil for none
	closed  bool
}

// SkipDamage makes the watches of the stores skip damaged resources of some types, if they can. It must be called before the first Next.
func (w *watch) SkipDamage(of func(storage.UnversionedType) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.skips = of
	skipDamage(w.current, of)
}

func skipDamage(w storage.Watch, of func(storage.UnversionedType) bool) {
	skipper, ok := w.(interface {
		SkipDamage(func(storage.UnversionedType) bool)
	})
	if ok && of != nil {
		skipper.SkipDamage(of)
	}
}

// WatchList implements storage.Backend.
func (b *Backend) WatchList(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, namePrefix string) (storage.Watch, error) {
	return call(ctx, b, func(ctx context.Context, store storage.Backend) (storage.Watch, error) {
		w, err := store.WatchList(ctx, typ, tenancy, namePrefix)
		if err != nil {
			return nil, err
		}
		return &watch{b: b, filter: filter{typ, tenancy, namePrefix}, store: store, current: w}, nil
	})
}

// WatchFrom implements storage.Resumer. The cursor may be of an earlier store.
func (b *Backend) WatchFrom(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, namePrefix, cursor string) (storage.Watch, error) {
	b.mu.Lock()
	stores := append([]storage.Backend(nil), b.stores...)
	b.mu.Unlock()
	f := filter{typ, tenancy, namePrefix}
	for i := len(stores) - 1; ; i-- {
		w, err := f.resume(ctx, stores[i], cursor)
		if err == nil {
			return &watch{b: b, filter: f, store: stores[i], current: w}, nil
		}
		if i == 0 || !errors.Is(err, storage.ErrCompacted) {
			return nil, err
		}
	}
}

func (f *filter) resume(ctx context.Context, store storage.Backend, cursor string) (storage.Watch, error) {
	resumer, err := capability[storage.Resumer](store)
	if err != nil {
		return nil, err
	}
	return resumer.WatchFrom(ctx, f.typ, f.tenancy, f.namePrefix, cursor)
}

// Next implements storage.Watch.
func (w *watch) Next(ctx context.Context) (*resourcepb.WatchEvent, error) {
	w.next.Lock()
	defer w.next.Unlock()
	for {
		w.mu.Lock()
		store, current := w.store, w.current
		w.mu.Unlock()
		event, err := current.Next(ctx)
		move := (*storage.MovedError)(nil)
		if !errors.As(err, &move) || move.Cursor == "" {
			return event, err
		}
		following, err := w.b.follow(ctx, store, move)
		if err != nil {
			return nil, contextError(ctx, err)
		}
		continued, err := w.filter.resume(ctx, following, move.Cursor)
		if err != nil {
			return nil, contextError(ctx, err)
		}
		if !w.move(following, continued) {
			continued.Close()
			return nil, storage.ErrWatchClosed
		}
	}
}

// contextError returns the error of the context if it is over: the watch has consumed nothing, and the next call continues.
func contextError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// move continues the watch in another store. It returns false if the watch was closed.
func (w *watch) move(store storage.Backend, continued storage.Watch) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	w.current.Close()
	skipDamage(continued, w.skips)
	w.store, w.current = store, continued
	return true
}

// Cursor implements storage.Watch.
func (w *watch) Cursor() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.current.Cursor()
}

// Close implements storage.Watch.
func (w *watch) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.current.Close()
}
