package sqlite

import (
	"context"

	"github.com/ncruces/go-sqlite3"

	"github.com/ashlar-dev/storage/driver"
)

// named gives a target without a name one, because the empty name stands for an open store.
func named(target string) string {
	if target == "" {
		return "another store"
	}
	return target
}

// SetFence implements driver.Mover. Writers see the fence in the row that each of their transactions begins with.
func (s *handle) SetFence(ctx context.Context, target *string) error {
	_, err := s.setFence(ctx, target, nil)
	return err
}

// Guards implements driver.GuardedMover.
func (*handle) Guards() {}

// SetFenceAt implements driver.GuardedMover. The epoch is the revision of a note.
func (s *handle) SetFenceAt(ctx context.Context, target *string, epoch string) (next string, err error) {
	return s.setFence(ctx, target, &epoch)
}

func (s *handle) setFence(ctx context.Context, target, epoch *string) (next string, err error) {
	text := ""
	if target != nil {
		text = named(*target)
	}
	err = s.writeAlone(ctx, "write the row", func(c *conn) error {
		if err := c.db.Exec(createJournal); err != nil {
			return err
		}
		if epoch != nil {
			at, err := c.note(driver.FenceNote, nil)
			switch {
			case err != nil:
				return err
			case at != *epoch:
				return driver.Conflict(driver.FenceNote)
			}
		}
		if next, err = c.putNote(driver.FenceNote, nil); err != nil {
			return err
		}
		return c.run(`UPDATE meta SET fence = ?1`, func(st *sqlite3.Stmt) error { return st.BindText(1, text) }, nil)
	})
	if err != nil {
		return "", err
	}
	return next, nil
}

// Fence implements driver.Mover.
func (s *handle) Fence(ctx context.Context) (state driver.FenceState, err error) {
	err = s.look(ctx, "read the row", func(c *conn) error {
		// The epoch first: if the fence changes between the two, the epoch is one that fits no more.
		if state.Epoch, err = c.note(driver.FenceNote, nil); err != nil {
			return err
		}
		return c.run(`SELECT fence FROM meta`, nil, func(st *sqlite3.Stmt) { state.Target = st.ColumnText(0) })
	})
	state.Closed = state.Target != ""
	return state, err
}

// guarded returns the error of a request whose guard does not hold. A batch reads a note once: it cannot change under a
// transaction that holds the write lock.
func (t *txn) guarded(g *driver.Guard) (refused, err error) {
	if g == nil {
		return nil, nil
	}
	if t.note == nil || t.note.Note != g.Note {
		at, err := t.conn.note(g.Note, nil)
		if err != nil {
			return nil, err
		}
		t.note = &driver.Guard{Note: g.Note, Revision: at}
	}
	if t.note.Revision != g.Revision {
		return g.Superseded(), nil
	}
	return nil, nil
}
