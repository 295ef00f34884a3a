package sqlite

import (
	"context"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
)

// Scan implements driver.Driver. The position and the rows are read in one transaction, and so from one snapshot.
func (s *handle) Scan(ctx context.Context, _ storage.ReadConsistency, f *driver.Filter, rows driver.Rows) (mark, error) {
	c, err := s.readers.take(ctx)
	if err != nil {
		return mark{}, err
	}
	defer s.readers.give(c)
	at, err := c.snapshot(f, rows)
	if err != nil {
		return mark{}, failed(ctx, "read the rows", err)
	}
	return at, nil
}

// List implements driver.Lister: one statement reads from one snapshot.
func (s *handle) List(ctx context.Context, _ storage.ReadConsistency, f *driver.Filter, rows driver.Rows) error {
	c, err := s.readers.take(ctx)
	if err != nil {
		return err
	}
	defer s.readers.give(c)
	if err := c.scan(f, rows); err != nil {
		return failed(ctx, "read the rows", err)
	}
	return nil
}

func (c *conn) snapshot(f *driver.Filter, rows driver.Rows) (at mark, err error) {
	if err = c.exec(begin); err == nil {
		at, err = c.newest()
	}
	if err == nil {
		err = c.scan(f, rows)
	}
	if err == nil {
		err = c.exec(commit)
	}
	if err != nil {
		_ = c.abandon() // the first error tells more
		return mark{}, err
	}
	return at, nil
}

// afterAll stands behind every key: no UTF-8 has it.
var afterAll = []byte{0xff}

// scan adds what matches a filter to rows, in key order.
func (c *conn) scan(filter *driver.Filter, rows driver.Rows) error {
	stmt, err := c.stmt(scan)
	if err != nil {
		return err
	}
	prefix, exact := filter.Prefix()
	end := key.PrefixEnd(prefix)
	if end == nil {
		end = afterAll
	}
	if err := stmt.BindBlob(1, prefix); err != nil {
		return err
	}
	if err := stmt.BindBlob(2, end); err != nil {
		return err
	}
	var at, version []byte // a raw blob is valid until the next one is asked for
	for stmt.Step() {
		at = stmt.ColumnBlob(0, at[:0])
		if !exact {
			k, err := key.Parse(at)
			if err != nil {
				_ = stmt.Reset()
				return err
			}
			if !filter.Match(&k) {
				continue
			}
		}
		version = mark{stmt.ColumnInt64(1), stmt.ColumnInt64(2)}.appendVersion(version[:0])
		if err := rows.Add(at, version, stmt.ColumnRawBlob(3)); err != nil {
			_ = stmt.Reset()
			return err
		}
	}
	return finish(stmt)
}
