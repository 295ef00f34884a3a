package sqlite

import (
	"context"
	"strconv"
	"strings"

	"github.com/ncruces/go-sqlite3"

	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
)

// noJournal reports whether a statement failed because the journal does not exist yet.
func noJournal(err error) bool {
	return err != nil && strings.Contains(err.Error(), "no such table: journal")
}

// ReadNote implements driver.Mover.
func (d *database) ReadNote(ctx context.Context, name string) (value []byte, revision string, err error) {
	err = d.read(ctx, "read the journal", func(c *conn) error {
		at, err := c.note(name, &value)
		revision = at
		return err
	})
	return value, revision, err
}

// WriteNote implements driver.Mover.
func (d *database) WriteNote(ctx context.Context, name string, value []byte, revision string) (next string, err error) {
	err = d.writeOutsideBatch(ctx, "write the journal", func(c *conn) error {
		if err := c.exec("create-journal"); err != nil {
			return err
		}
		at, err := c.note(name, nil)
		switch {
		case err != nil:
			return err
		case at != revision:
			return driver.Conflict(name)
		}
		next, err = c.putNote(name, value)
		return err
	})
	if err != nil {
		return "", err
	}
	return next, nil
}

// DeleteNote implements driver.Mover.
func (d *database) DeleteNote(ctx context.Context, name, revision string) error {
	return d.writeOutsideBatch(ctx, "write the journal", func(c *conn) error {
		at, err := c.note(name, nil)
		switch {
		case err != nil || at == "":
			return err
		case at != revision:
			return driver.Conflict(name)
		}
		return c.exec("delete-note", name)
	})
}

// note returns the revision of a note, or "" if it does not exist. It stores the value in *value unless value is nil.
func (c *conn) note(name string, value *[]byte) (revision string, err error) {
	_, err = c.queryRow("read-note", func(s *sqlite3.Stmt) {
		revision = strconv.FormatInt(s.ColumnInt64(0), 10)
		if value != nil {
			*value = s.ColumnBlob(1, nil)
		}
	}, name)
	if noJournal(err) {
		return "", nil
	}
	return revision, err
}

// putNote writes a note and returns its revision.
func (c *conn) putNote(name string, value []byte) (revision string, err error) {
	number := randomTag() // random, so that a note created again has a new revision
	return strconv.FormatInt(number, 10), c.exec("write-note", name, number, value)
}

// fenceText returns a fence as stored, or a placeholder for an empty text, because that means an open store.
func fenceText(f *driver.Fence) string {
	switch {
	case f == nil:
		return ""
	case *f == driver.Fence{}:
		return "another store"
	}
	return f.Encode()
}

// SetFence implements driver.Mover. Every write transaction reads the fence in its first statement.
func (d *database) SetFence(ctx context.Context, target *string) error {
	var fence *driver.Fence
	if target != nil {
		fence = &driver.Fence{Target: *target}
	}
	_, err := d.setFence(ctx, fence, nil)
	return err
}

// Guards implements driver.GuardedMover.
func (*database) Guards() {}

// SetFenceAt implements driver.GuardedMover. The epoch is the revision of a note.
func (d *database) SetFenceAt(ctx context.Context, fence *driver.Fence, epoch string) (next string, err error) {
	return d.setFence(ctx, fence, &epoch)
}

func (d *database) setFence(ctx context.Context, fence *driver.Fence, epoch *string) (next string, err error) {
	text := fenceText(fence)
	err = d.writeOutsideBatch(ctx, "write the journal", func(c *conn) error {
		if err := c.exec("create-journal"); err != nil {
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
		if err := c.exec("set-fence", text); err != nil {
			return err
		}
		return c.script("mark-fence")
	})
	if err != nil {
		return "", err
	}
	return next, nil
}

// Fence implements driver.Mover.
func (d *database) Fence(ctx context.Context) (state driver.FenceState, err error) {
	err = d.read(ctx, "read the journal", func(c *conn) error {
		// Read the epoch first. If the fence changes in between, the epoch is outdated and later calls with it fail.
		if state.Epoch, err = c.note(driver.FenceNote, nil); err != nil {
			return err
		}
		text, err := c.fence()
		state.Fence, state.Closed = driver.DecodeFence(text), text != ""
		return err
	})
	return state, err
}

// ReadAfter implements driver.Bulk.
func (d *database) ReadAfter(ctx context.Context, after []byte, limit int) (rows []driver.Row, err error) {
	err = d.read(ctx, "read the resources", func(c *conn) error {
		rows, err = c.readAfter(after, limit)
		return err
	})
	return rows, err
}

// above returns the lowest key above a key, or nil for nil.
func above(after []byte) []byte {
	if after == nil {
		return nil
	}
	return append(after[:len(after):len(after)], 0)
}

func (c *conn) readAfter(after []byte, limit int) ([]driver.Row, error) {
	stmt, err := c.query("list-resources", above(after), keyUpperBound)
	if err != nil {
		return nil, err
	}
	rows := make([]driver.Row, 0, limit)
	for bytes := 0; len(rows) < limit && bytes < driver.ReadBytes && stmt.Step(); {
		k, err := key.Parse(stmt.ColumnRawBlob(0))
		if err != nil {
			_ = stmt.Reset() // the first error is more specific
			return nil, err
		}
		data := stmt.ColumnBlob(3, nil)
		rows = append(rows, driver.Row{Key: k, Version: position{stmt.ColumnInt64(1), stmt.ColumnInt64(2)}.version(), Data: data})
		bytes += len(data)
	}
	return rows, finish(stmt)
}
