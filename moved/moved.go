package moved

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/migrate"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Resolve opens the target of a move, with the credentials that the error lacks. The Backend closes the result.
type Resolve func(ctx context.Context, to *storage.MovedError) (storage.Backend, error)

// Backend is a store that follows its moves. It implements [storage.Backend], [storage.Pager], [storage.Resumer] and [storage.Transactor].
// A call of a capability that the present store lacks fails with [storage.ErrInvalid].
type Backend struct {
	resolve   Resolve
	following chan struct{} // a semaphore: one call opens the next store for all
	lifetime  context.Context
	end       context.CancelFunc

	mu     sync.Mutex
	stores []storage.Backend // the last one is the present one
	closed bool
}

var (
	_ storage.Backend    = (*Backend)(nil)
	_ storage.Pager      = (*Backend)(nil)
	_ storage.Resumer    = (*Backend)(nil)
	_ storage.Transactor = (*Backend)(nil)
)

// New returns a backend that starts with a store, and takes ownership of it.
func New(first storage.Backend, resolve Resolve) *Backend {
	b := &Backend{resolve: resolve, following: make(chan struct{}, 1), stores: []storage.Backend{first}}
	b.lifetime, b.end = context.WithCancel(context.Background())
	return b
}

// Present returns the store that calls go to.
func (b *Backend) Present() storage.Backend {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stores[len(b.stores)-1]
}

// Close closes all stores. Their calls and watches end with storage.ErrClosed.
func (b *Backend) Close() error {
	b.end()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	var errs []error
	for _, store := range b.stores {
		errs = append(errs, store.Close())
	}
	return errors.Join(errs...)
}

// follow opens the store to which a store has moved, unless another call has done so. It returns the next store.
func (b *Backend) follow(ctx context.Context, from storage.Backend, move *storage.MovedError) (storage.Backend, error) {
	select {
	case b.following <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: the store has moved: %w", storage.ErrInconsistent, ctx.Err())
	case <-b.lifetime.Done():
		return nil, storage.ErrClosed
	}
	defer func() { <-b.following }()
	if next := b.after(from); next != nil {
		return next, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(b.lifetime, cancel)()
	next, err := b.resolve(ctx, move)
	if err == nil {
		if err = checkIdentity(ctx, next, move); err != nil {
			err = errors.Join(err, next.Close())
		}
	}
	switch {
	case b.lifetime.Err() != nil && err != nil:
		return nil, storage.ErrClosed
	case err != nil:
		return nil, fmt.Errorf("%w: open %s: %w", move, move.Target, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, errors.Join(storage.ErrClosed, next.Close())
	}
	b.stores = append(b.stores, next)
	return next, nil
}

// checkIdentity returns an error if a store is not the target of a move. A URL can lead to a store that the tool has not filled: an empty
// one that was just created, or the old one again.
func checkIdentity(ctx context.Context, next storage.Backend, move *storage.MovedError) error {
	id, err := migrate.Identity(ctx, next)
	switch {
	case move.Identity == "", errors.Is(err, migrate.ErrUnsupported):
		return nil
	case err != nil:
		return err
	case id != move.Identity:
		return fmt.Errorf("%w: the store at the URL is not the target of the move", storage.ErrInvalid)
	}
	return nil
}

// after returns the store to which a store has moved, or nil.
func (b *Backend) after(from storage.Backend) storage.Backend {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, store := range b.stores[:len(b.stores)-1] {
		if store == from {
			return b.stores[i+1]
		}
	}
	return nil
}

const (
	// timeout bounds the wait for a closed store of a call without a deadline.
	timeout = 30 * time.Second
	// maxPause is the longest pause between two attempts.
	maxPause = 500 * time.Millisecond
)

// call runs a call on the present store, and again on the next one if the store has moved. While the store is being moved, it waits.
func call[T any](ctx context.Context, b *Backend, run func(ctx context.Context, store storage.Backend) (T, error)) (T, error) {
	var waiting context.Context
	for pause := 5 * time.Millisecond; ; {
		store := b.Present()
		result, err := run(ctx, store)
		if !errors.Is(err, storage.ErrFenced) || errors.Is(err, storage.ErrInconsistent) {
			return result, err // a write with ErrInconsistent may have been applied before the store was closed
		}
		if move := (*storage.MovedError)(nil); errors.As(err, &move) {
			if _, err := b.follow(ctx, store, move); err != nil {
				return result, err
			}
			continue
		}
		if waiting == nil {
			waiting = ctx
			if _, bounded := ctx.Deadline(); !bounded {
				var cancel context.CancelFunc
				waiting, cancel = context.WithTimeout(ctx, timeout)
				defer cancel()
			}
		}
		select {
		case <-time.After(pause):
			pause = min(2*pause, maxPause)
		case <-waiting.Done():
			if ctx.Err() != nil {
				err = fmt.Errorf("%w: %w", err, ctx.Err())
			}
			return result, err
		}
	}
}

// checkMoved returns the error of a store that has moved. It reads the fence, which a call may do after a request: until the move is recorded,
// nothing changes in the next store.
func checkMoved(ctx context.Context, store storage.Backend) error {
	m, movable := storage.As[driver.Mover](store)
	if !movable {
		return nil
	}
	state, err := m.Fence(ctx)
	return cmp.Or(err, state.Move())
}

// Read implements storage.Backend.
func (b *Backend) Read(ctx context.Context, consistency storage.ReadConsistency, id *resourcepb.ID) (*resourcepb.Resource, error) {
	return call(ctx, b, func(ctx context.Context, store storage.Backend) (*resourcepb.Resource, error) {
		return store.Read(ctx, consistency, id)
	})
}

// WriteCAS implements storage.Backend.
func (b *Backend) WriteCAS(ctx context.Context, res *resourcepb.Resource) (*resourcepb.Resource, error) {
	return call(ctx, b, func(ctx context.Context, store storage.Backend) (*resourcepb.Resource, error) {
		return store.WriteCAS(ctx, res)
	})
}

// isRefusal reports whether an error describes the stored state.
func isRefusal(err error) bool {
	return (errors.Is(err, storage.ErrCASFailure) || errors.Is(err, storage.ErrWrongUid)) && !errors.Is(err, storage.ErrInconsistent)
}

// DeleteCAS implements storage.Backend. A delete that changes nothing succeeds or is refused only in a store that has not moved. If a deletion
// succeeds and the store moves meanwhile, a failure in the next store matches storage.ErrInconsistent: the deletion may have been applied.
func (b *Backend) DeleteCAS(ctx context.Context, id *resourcepb.ID, version string) error {
	applied := false
	_, err := call(ctx, b, func(ctx context.Context, store storage.Backend) (none struct{}, err error) {
		err = store.DeleteCAS(ctx, id, version)
		if err == nil || isRefusal(err) {
			if unproven := checkMoved(ctx, store); unproven != nil {
				applied = applied || err == nil
				err = unproven
			}
		}
		return none, err
	})
	return uncertain(ctx, applied, err)
}

// uncertain returns the error of a call with deletions. A store may have applied the deletions before it moved, but the next store still has the
// resources. The error must not say that nothing was changed.
func uncertain(ctx context.Context, applied bool, err error) error {
	if !applied || err == nil {
		return err
	}
	if over := ctx.Err(); over != nil && !errors.Is(err, over) {
		err = fmt.Errorf("%w: %w", err, over)
	}
	return driver.Uncertain(fmt.Errorf("the store may have applied the deletion before it moved: %w", err))
}

// List implements storage.Backend.
func (b *Backend) List(ctx context.Context, consistency storage.ReadConsistency, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, namePrefix string) ([]*resourcepb.Resource, error) {
	return call(ctx, b, func(ctx context.Context, store storage.Backend) ([]*resourcepb.Resource, error) {
		return store.List(ctx, consistency, typ, tenancy, namePrefix)
	})
}

// ListPage implements storage.Pager.
func (b *Backend) ListPage(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, namePrefix string, opts storage.ListOptions) (storage.Page, error) {
	return call(ctx, b, func(ctx context.Context, store storage.Backend) (storage.Page, error) {
		pager, err := capability[storage.Pager](store)
		if err != nil {
			return storage.Page{}, err
		}
		return pager.ListPage(ctx, typ, tenancy, namePrefix, opts)
	})
}

// OwnerReferences implements storage.Backend. The answer is eventual.
func (b *Backend) OwnerReferences(ctx context.Context, id *resourcepb.ID) ([]*resourcepb.ID, error) {
	return b.Present().OwnerReferences(ctx, id)
}

// Commit implements storage.Transactor. A transaction that may have changed nothing succeeds only in a store that has not moved. A result
// with a written resource is true in any case: the store had not moved when it was written.
func (b *Backend) Commit(ctx context.Context, ops []storage.Op) ([]*resourcepb.Resource, error) {
	applied := false
	results, err := call(ctx, b, func(ctx context.Context, store storage.Backend) ([]*resourcepb.Resource, error) {
		transactor, err := capability[storage.Transactor](store)
		if err != nil {
			return nil, err
		}
		results, err := transactor.Commit(ctx, ops)
		wrote := slices.ContainsFunc(results, func(res *resourcepb.Resource) bool { return res != nil })
		if err == nil && !wrote || isRefusal(err) { // a transaction that changes nothing need not find the fence
			if unproven := checkMoved(ctx, store); unproven != nil {
				applied = applied || err == nil && slices.ContainsFunc(ops, func(op storage.Op) bool { return op.Delete != nil })
				return nil, unproven
			}
		}
		return results, err
	})
	return results, uncertain(ctx, applied, err)
}

// MaxOps implements storage.Transactor. It is the number that every store supports.
func (b *Backend) MaxOps() int { return 32 }

func capability[T any](store storage.Backend) (T, error) {
	c, ok := storage.As[T](store)
	if !ok {
		return c, fmt.Errorf("%w: the store is no %T", storage.ErrInvalid, &c)
	}
	return c, nil
}
