package moved

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
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

	lifetime context.Context // ends with Close
	end      context.CancelFunc

	mu      sync.Mutex
	store   storage.Backend
	current storage.Watch
	skips   func(storage.UnversionedType) bool // of SkipDamage, nil for none
	ends    bool                               // of EndAtMove
	endErr  error                              // the final error
	closed  bool
}

func newWatch(b *Backend, f filter, store storage.Backend, current storage.Watch) *watch {
	w := &watch{b: b, filter: f, store: store, current: current}
	w.lifetime, w.end = context.WithCancel(b.lifetime)
	return w
}

// SkipDamage makes the watches of the stores skip damaged resources of some types, if they can. It must be called before the first Next.
func (w *watch) SkipDamage(of func(storage.UnversionedType) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.skips = of
	skipDamage(w.current, of)
}

// EndAtMove makes the watch end with storage.ErrCompacted when its store has moved, instead of continuing in the next store. It is for readers that
// keep a copy: the copied resources have other versions in the next store, which no watch returns, so they list again. It must be called before the
// first Next.
func (w *watch) EndAtMove() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ends = true
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
		return newWatch(b, filter{typ, tenancy, namePrefix}, store, w), nil
	})
}

// WatchFrom implements storage.Resumer. The cursor may be of an earlier store, or of one to which the present one has moved.
func (b *Backend) WatchFrom(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, namePrefix, cursor string) (storage.Watch, error) {
	f := filter{typ, tenancy, namePrefix}
	for {
		b.mu.Lock()
		stores := slices.Clone(b.stores)
		b.mu.Unlock()
		w, err := b.resume(ctx, f, stores, cursor)
		if !errors.Is(err, storage.ErrCompacted) {
			return w, err
		}
		present := stores[len(stores)-1]
		err = cmp.Or(checkMoved(ctx, present), err)
		move := (*storage.MovedError)(nil)
		if !errors.As(err, &move) {
			return nil, err
		}
		if _, err := b.follow(ctx, present, move); err != nil {
			return nil, err
		}
	}
}

// resume resumes a watch in the newest of the stores that knows the cursor.
func (b *Backend) resume(ctx context.Context, f filter, stores []storage.Backend, cursor string) (storage.Watch, error) {
	for i := len(stores) - 1; ; i-- {
		w, err := f.resume(ctx, stores[i], cursor)
		if err == nil {
			return newWatch(b, f, stores[i], w), nil
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
		store, current, ended := w.store, w.current, w.endErr
		w.mu.Unlock()
		if ended != nil {
			return nil, ended
		}
		event, err := current.Next(ctx)
		move := (*storage.MovedError)(nil)
		if !errors.As(err, &move) || move.Cursor == "" {
			return event, err
		}
		if err := w.follow(ctx, store, move); err != nil {
			return nil, w.reason(ctx, err)
		}
	}
}

// follow continues the watch in the store to which its store has moved.
func (w *watch) follow(ctx context.Context, from storage.Backend, move *storage.MovedError) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(w.lifetime, cancel)()
	if w.lifetime.Err() != nil {
		return storage.ErrWatchClosed
	}
	following, err := w.b.follow(ctx, from, move)
	if err != nil {
		return err
	}
	if err := w.endAtMove(); err != nil {
		return err
	}
	continued, err := w.filter.resume(ctx, following, move.Cursor)
	if errors.Is(err, storage.ErrCompacted) {
		return w.finish(fmt.Errorf("%w: %w", storage.ErrWatchClosed, err))
	}
	if err != nil {
		return err
	}
	if !w.move(following, continued) {
		continued.Close()
		return storage.ErrWatchClosed
	}
	return nil
}

// endAtMove ends the watch if EndAtMove was called, and returns its final error.
func (w *watch) endAtMove() error {
	w.mu.Lock()
	ends := w.ends
	w.mu.Unlock()
	if !ends {
		return nil
	}
	return w.finish(fmt.Errorf("%w: %w: %w", storage.ErrWatchClosed, storage.ErrCompacted, errVersions))
}

// finish makes an error the final one, unless the watch was closed, and returns the final one.
func (w *watch) finish(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lifetime.Err() != nil {
		return storage.ErrWatchClosed
	}
	w.endErr = err
	return err
}

// errVersions is the reason why a watch of a copy ends.
var errVersions = errors.New("the store has moved, and the versions have changed")

// reason returns the error of a call that could not follow the store. The final error comes first, then Close, then the end of the context. If
// there is no final error, the watch has consumed nothing, and the next call continues.
func (w *watch) reason(ctx context.Context, err error) error {
	w.mu.Lock()
	final := w.endErr
	w.mu.Unlock()
	switch {
	case final != nil:
		return final
	case w.b.lifetime.Err() != nil:
		return fmt.Errorf("%w: %w", storage.ErrWatchClosed, storage.ErrClosed)
	case w.lifetime.Err() != nil:
		return storage.ErrWatchClosed
	case ctx.Err() != nil:
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
	w.end()
	w.current.Close()
}
