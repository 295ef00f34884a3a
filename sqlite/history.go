package sqlite

import (
	"context"
	"errors"
	"fmt"

	"github.com/ncruces/go-sqlite3"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
)

// rowRange is the rows of the log at which the store can be read: from the horizon up to the newest.
type rowRange struct {
	horizon int64
	newest  position
}

// check returns nil if a row may be asked for.
func (s rowRange) check(seq int64) error {
	switch {
	case seq < s.horizon:
		return fmt.Errorf("%w: the store can be read from revision %d on, not at %d", storage.ErrCompacted, revision(s.horizon), revision(seq))
	case seq > s.newest.seq:
		return fmt.Errorf("%w: the newest is %d, not %d", storage.ErrFutureRevision, s.newest.revision(), revision(seq))
	}
	return nil
}

func (c *conn) readableRange() (sp rowRange, err error) {
	s, err := c.stmt(readable)
	if err != nil {
		return sp, err
	}
	if s.Step() {
		sp = rowRange{s.ColumnInt64(0), position{s.ColumnInt64(1), s.ColumnInt64(2)}}
	}
	return sp, finish(s)
}

// positionOf returns the mark of a row that may be asked for.
func (c *conn) positionOf(seq int64) (position, error) {
	if seq == 0 {
		return position{}, nil
	}
	s, err := c.stmt(tagOf)
	if err != nil {
		return position{}, err
	}
	if err := s.BindInt64(1, seq); err != nil {
		return position{}, err
	}
	m := position{seq: seq}
	there := s.Step()
	if there {
		m.tag = s.ColumnInt64(0)
	}
	if err := finish(s); err != nil {
		return position{}, err
	}
	if !there {
		return position{}, errMissingRow
	}
	return m, nil
}

// checkPosition returns nil if a position is one of this log, and one at which the store can be read.
func (c *conn) checkPosition(at position, sp rowRange) error {
	if at.seq > sp.newest.seq {
		return errRestored
	}
	if err := sp.check(at.seq); err != nil {
		return err
	}
	if here, err := c.positionOf(at.seq); err != nil || here != at {
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

// PositionAt implements driver.Historian. Rows are numbered in the order of commits, so what is not there yet comes later.
func (d *database) PositionAt(ctx context.Context, rev int64) (at position, err error) {
	err = d.inSnapshot(ctx, "read the log", func(c *conn) error {
		sp, err := c.readableRange()
		if err == nil {
			err = sp.check(seqOf(rev))
		}
		if err == nil {
			at, err = c.positionOf(seqOf(rev))
		}
		return err
	})
	return at, err
}

// Settled implements driver.Historian: when a change is committed, all that come before it are.
func (*database) Settled(context.Context, int64) error { return nil }

// RevisionOf implements driver.Historian.
func (*database) RevisionOf(at position) int64 { return at.revision() }

// Compact implements driver.Historian. It deletes what it can within its time; those who write delete the rest.
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
		return c.execWith(moveFollowed, seqOf(rev))
	})
	for done := false; !done && err == nil; {
		swept := d.writeOutsideBatch(ctx, "prune the log", func(c *conn) error {
			t, err := newTxn(c, nil)
			if err == nil {
				done, err = t.sweep(pruneStep)
			}
			return err
		})
		if swept != nil {
			break // the revision is the oldest one all the same
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
	createRevision, writes, prev int64
	deletion                     bool
	data                         []byte
}

// version returns what a row that is a write has written.
func (l *logRecord) version(key []byte) *driver.Version {
	return &driver.Version{
		Key: key, Version: l.appendVersion(nil), Data: l.data,
		CreateRevision: revision(l.createRevision), ModRevision: l.revision(), Writes: l.writes,
	}
}

// readLogRecord reads a row of the log, with its data only where that is wanted.
func (c *conn) readLogRecord(seq int64, data bool) (*logRecord, error) {
	s, err := c.stmt(logRow)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(s.BindInt64(1, seq), s.BindBool(2, data)); err != nil {
		return nil, err
	}
	there := s.Step()
	l := &logRecord{position: position{seq, s.ColumnInt64(0)}, createRevision: s.ColumnInt64(1), writes: s.ColumnInt64(2), prev: s.ColumnInt64(3)}
	if there {
		l.deletion = s.ColumnType(4) != sqlite3.NULL
		if data {
			l.data = s.ColumnBlob(5, nil)
		}
	}
	if err := finish(s); err != nil {
		return nil, err
	}
	if !there {
		return nil, errMissingRow
	}
	return l, nil
}
