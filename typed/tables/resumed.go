package tables

import (
	"context"
	"fmt"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/internal/replica"
	"github.com/ashlar-dev/storage/resourcepb"
)

// WatchFrom returns a watch of every change after a cursor, the [Event.Cursor] of an event of any store with the same tables, in any process. It reads
// the history of the database, not the copy in memory: an event may be about a state that is not in a View yet, or is no longer.
//
// It fails with [storage.ErrCompacted] if the history after the cursor is gone: call [Store.ViewAndWatch], and compare the View with the state of
// the program. It fails with [storage.ErrInvalid] for a damaged cursor, and if the backend is not a [storage.Resumer].
//
// [Change.Old] of an update is the state before if the backend keeps history (package history), and nil otherwise.
func (s *Store) WatchFrom(ctx context.Context, cursor string, filters ...Filter) (*Watch, error) {
	if err := s.checkOpen(ctx); err != nil {
		return nil, err
	}
	w, err := s.newWatch(filters)
	if err != nil {
		return nil, err
	}
	inner, err := s.copy.WatchFrom(ctx, cursor)
	if err != nil {
		return nil, err
	}
	if recaller, ok := inner.(history.Recaller); ok {
		recaller.Recall()
	}
	w.changes = &resumedChanges{store: s, watch: inner, stop: context.AfterFunc(s.lifetime, inner.Close)}
	return w, nil
}

// resumedChanges reads the changes of a watch of the database.
type resumedChanges struct {
	store  *Store
	watch  storage.Watch
	stop   func() bool // ends the wait for the end of the store
	commit []replica.Change[*entry]
	isPart bool // commit has a part of a commit
}

// Next returns the changes of the next commit.
func (r *resumedChanges) Next(ctx context.Context) ([]replica.Change[*entry], error) {
	if !r.isPart {
		r.commit = r.commit[:0]
	}
	for {
		if err := r.Err(ctx); err != nil {
			return nil, err
		}
		ev, err := r.watch.Next(ctx)
		if err != nil {
			if r.store.closed.Load() {
				return nil, r.Err(ctx)
			}
			return nil, err
		}
		c := replica.Change[*entry]{Cursor: r.watch.Cursor()}
		if res := ev.GetUpsert().GetResource(); res != nil {
			c.Old, c.New = r.row(ev.GetBefore()), r.row(res)
		} else {
			c.Old = r.row(ev.GetDelete().GetResource())
		}
		if c.Old != nil || c.New != nil {
			r.commit = append(r.commit, c)
		}
		if r.isPart = ev.GetMore(); !r.isPart && len(r.commit) > 0 {
			return r.commit, nil
		}
	}
}

// row returns the row of a resource of a table, nil for other resources.
func (r *resumedChanges) row(res *resourcepb.Resource) *replica.Row[*entry] {
	if _, ok := r.store.tables[storage.UnversionedTypeFrom(res.GetId().GetType())]; res == nil || !ok {
		return nil
	}
	return &replica.Row[*entry]{Key: key.Of(res.GetId()), Version: res.GetVersion(), Value: r.store.decode(res)}
}

// Err returns the context's error, and storage.ErrWatchClosed if the store is closed.
func (r *resumedChanges) Err(ctx context.Context) error {
	if r.store.closed.Load() {
		return fmt.Errorf("%w: %w", storage.ErrWatchClosed, storage.ErrClosed)
	}
	return ctx.Err()
}

// Close ends the watch.
func (r *resumedChanges) Close() {
	r.stop()
	r.watch.Close()
}
