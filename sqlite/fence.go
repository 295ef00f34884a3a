package sqlite

import (
	"context"
	"errors"

	"github.com/ncruces/go-sqlite3"

	"github.com/ashlar-dev/storage/internal/handover"
)

var (
	_ handover.EpochFencer = (*Backend)(nil)
	_ handover.Guarder     = (*Backend)(nil)
)

// Fence closes the store for writing, for the tool that moves its data to another one. Writers see it in the row that each of
// their transactions begins with.
func (s *Backend) Fence(ctx context.Context, target string) error {
	_, err := s.setFence(ctx, named(target), nil)
	return err
}

// Unfence opens the store again.
func (s *Backend) Unfence(ctx context.Context) error {
	_, err := s.setFence(ctx, "", nil)
	return err
}

// FenceAt is Fence if the fence has that epoch.
func (s *Backend) FenceAt(ctx context.Context, target, epoch string) (string, error) {
	return s.setFence(ctx, named(target), &epoch)
}

// UnfenceAt is Unfence if the fence has that epoch.
func (s *Backend) UnfenceAt(ctx context.Context, epoch string) (string, error) {
	return s.setFence(ctx, "", &epoch)
}

// named gives a target without a name one, because the empty name stands for an open store.
func named(target string) string {
	if target == "" {
		return "another store"
	}
	return target
}

// setFence changes the fence, if it has the given epoch (nil: whatever it has), and its epoch, which is the revision of a note.
func (s *Backend) setFence(ctx context.Context, target string, epoch *string) (next string, err error) {
	err = s.handover(ctx, "fence", func(c *conn) error {
		if err := c.db.Exec(createJournal); err != nil {
			return err
		}
		if epoch != nil {
			if at, err := c.note(handover.FenceNote, nil); err != nil || at != *epoch {
				return errors.Join(err, handover.Conflict(handover.FenceNote))
			}
		}
		if next, err = c.putNote(handover.FenceNote, nil); err != nil {
			return err
		}
		return c.run(`UPDATE meta SET fence = ?1`, func(st *sqlite3.Stmt) error { return st.BindText(1, target) }, nil)
	})
	if err != nil {
		return "", err
	}
	return next, nil
}

// Fenced tells whether the store is closed for writing, and where its data went.
func (s *Backend) Fenced(ctx context.Context) (target string, fenced bool, err error) {
	state, err := s.FenceState(ctx)
	return state.Target, state.Closed, err
}

// FenceState is Fenced, with the fence's epoch.
func (s *Backend) FenceState(ctx context.Context) (state handover.FenceState, err error) {
	err = s.look(ctx, "fence", func(c *conn) error {
		// The epoch first: if the fence changes between the two, the epoch is one that fits no more.
		if state.Epoch, err = c.note(handover.FenceNote, nil); err != nil {
			return err
		}
		return c.run(`SELECT fence FROM meta`, nil, func(st *sqlite3.Stmt) { state.Target = st.ColumnText(0) })
	})
	state.Closed = state.Target != ""
	return state, err
}

// WithGuard makes the changes of a context depend on a note, for the tool that moves data to this store. The writer compares it
// in the transaction of the change.
func (s *Backend) WithGuard(ctx context.Context, note, revision string) context.Context {
	return handover.Guarded(ctx, note, revision)
}

// guarded returns the error of a request whose guard does not hold. A batch reads a note once: it cannot change under a
// transaction that holds the write lock.
func (t *txn) guarded(g *handover.Guard) (refused, err error) {
	if g == nil {
		return nil, nil
	}
	if t.note == nil || t.note.Note != g.Note {
		at, err := t.conn.note(g.Note, nil)
		if err != nil {
			return nil, err
		}
		t.note = &handover.Guard{Note: g.Note, Revision: at}
	}
	if t.note.Revision != g.Revision {
		return g.Superseded(), nil
	}
	return nil, nil
}
