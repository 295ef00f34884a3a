package sqlite

import (
	"context"
	"errors"
	"fmt"

	"github.com/ncruces/go-sqlite3"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
)

// rowRange is the range of readable rows, from the horizon to the newest.
type rowRange struct {
	horizon int64
	newest  position
	fence   string
}

// check returns an error unless the range contains a row.
func (s rowRange) check(seq int64) error {
	switch {
	case seq < s.horizon:
		return fmt.Errorf("%w: history begins at revision %d, requested was %d", storage.ErrCompacted, revision(s.horizon), revision(seq))
	case seq > s.newest.seq:
		return fmt.Errorf("%w: the newest revision is %d, requested was %d", storage.ErrFutureRevision, s.newest.revision(), revision(seq))
	}
	return nil
}

func (c *conn) readableRange() (sp rowRange, err error) {
	_, err = c.queryRow("readable-range", func(s *sqlite3.Stmt) {
		sp = rowRange{s.ColumnInt64(0), position{s.ColumnInt64(1), s.ColumnInt64(2)}, s.ColumnText(3)}
	})
	return sp, err
}

// positionOf returns the position of a row within the readable range.
func (c *conn) positionOf(seq int64) (position, error) {
	if seq == 0 {
		return position{}, nil
	}
	m := position{seq: seq}
	exists, err := c.queryRow("row-tag", func(s *sqlite3.Stmt) { m.tag = s.ColumnInt64(0) }, seq)
	if err == nil && !exists {
		err = errMissingRow
	}
	if err != nil {
		return position{}, err
	}
	return m, nil
}

// completeRow returns the position of the newest row, up to a row of the readable range, at which no call is incomplete.
func (c *conn) completeRow(seq int64, sp rowRange) (m position, err error) {
	exists, err := c.queryRow("complete-row", func(s *sqlite3.Stmt) { m = position{s.ColumnInt64(0), s.ColumnInt64(1)} }, seq)
	if err == nil && !exists && sp.horizon > 0 {
		err = errMissingRow
	}
	return m, err
}

// checkPosition returns an error unless the position belongs to this log and the store can be read at it.
func (c *conn) checkPosition(at position, sp rowRange) error {
	if at.seq > sp.newest.seq {
		return errRestored
	}
	if err := sp.check(at.seq); err != nil {
		return err
	}
	if stored, err := c.positionOf(at.seq); err != nil || stored != at {
		return errors.Join(err, errRestored)
	}
	return nil
}

// Revisions implements driver.Historian.
func (d *database) Revisions(ctx context.Context) (oldest, newest int64, err error) {
	var sp rowRange
	err = d.read(ctx, "read the log", func(c *conn) error {
		sp, err = c.readableRange()
		return err
	})
	return revision(sp.horizon), sp.newest.revision(), err
}

// PositionAt implements driver.Historian. Rows are numbered in the order of commits, so a missing higher number is in
// the future. A number inside a call is no revision of a change, and shows the state before the call.
func (d *database) PositionAt(ctx context.Context, rev int64) (at position, err error) {
	err = d.inSnapshot(ctx, "read the log", func(c *conn) error {
		sp, err := c.readableRange()
		if err == nil {
			err = sp.check(seqOf(rev))
		}
		if err == nil {
			at, err = c.completeRow(seqOf(rev), sp)
		}
		return err
	})
	return at, err
}

// AwaitFinal implements driver.Historian. A committed change is final, because all earlier ones are committed too.
func (*database) AwaitFinal(context.Context, int64) error { return nil }

// RevisionOf implements driver.Historian.
func (*database) RevisionOf(at position) int64 { return at.revision() }

// Compact implements driver.Historian. It deletes as many rows as its context allows; later writes delete the rest.
func (d *database) Compact(ctx context.Context, rev int64) error {
	err := d.writeOutsideBatch(ctx, "move the horizon", func(c *conn) error {
		sp, err := c.readableRange()
		switch {
		case err != nil:
			return err
		case seqOf(rev) <= sp.horizon:
			return nil
		case seqOf(rev) > sp.newest.seq:
			return sp.check(seqOf(rev))
		}
		end, err := c.completeRow(seqOf(rev), sp)
		if err != nil || end.seq <= sp.horizon {
			return err
		}
		return c.exec("move-horizon", end.seq)
	})
	for done := false; !done && err == nil; {
		pruneErr := d.writeOutsideBatch(ctx, "prune the log", func(c *conn) error {
			state, err := c.storeState()
			if err == nil {
				t := newTxn(c, state, nil)
				done, err = t.sweep(pruneStep)
			}
			return err
		})
		if pruneErr != nil {
			break // the horizon has moved, and writers prune the rest
		}
	}
	return err
}

// Before implements driver.Historian.
func (d *database) Before(ctx context.Context, events []*event) (versions []*driver.Version, err error) {
	err = d.inSnapshot(ctx, "read the log", func(c *conn) error {
		sp, err := c.readableRange()
		if err != nil {
			return err
		}
		versions = make([]*driver.Version, len(events))
		for i, ev := range events {
			if ev.At.seq > sp.newest.seq || ev.At.seq <= sp.horizon {
				return errRestored
			}
			row, err := c.readLogRecord(ev.At.seq, false)
			switch {
			case errors.Is(err, errMissingRow) || err == nil && row.position != ev.At:
				return errRestored
			case err != nil:
				return err
			case row.prev == 0:
				continue
			}
			if row, err = c.readLogRecord(row.prev, true); err != nil {
				return err
			}
			versions[i] = row.version(ev.Key.Bytes())
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return versions, nil
}

// logRecord is a row of the log.
type logRecord struct {
	position
	last, creation, writes, prev int64
	data                         []byte
}

// version returns the version that the row of a write stored.
func (l *logRecord) version(key []byte) *driver.Version {
	return &driver.Version{
		Key: key, Version: l.appendVersion(nil), Data: l.data,
		CreateRevision: revision(l.creation), ModRevision: revision(max(l.seq, l.last)), Writes: l.writes,
	}
}

// readLogRecord reads a row of the log, optionally with its data.
func (c *conn) readLogRecord(seq int64, data bool) (*logRecord, error) {
	l := &logRecord{position: position{seq: seq}}
	exists, err := c.queryRow("log-row", func(s *sqlite3.Stmt) {
		l.tag, l.last, l.creation, l.writes, l.prev = s.ColumnInt64(0), s.ColumnInt64(1), s.ColumnInt64(2), s.ColumnInt64(3), s.ColumnInt64(4)
		if data {
			l.data = s.ColumnBlob(5, nil)
		}
	}, seq, data)
	if err == nil && !exists {
		err = errMissingRow
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}
