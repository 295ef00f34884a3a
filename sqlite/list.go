package sqlite

import (
	"context"
	"errors"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// List implements driver.Driver. If the filter is a range of keys, one statement reads it from one snapshot. Otherwise
// scan may run the statement several times, so List uses a transaction.
func (d *database) List(ctx context.Context, consistency storage.ReadConsistency, f *driver.Filter, rows driver.Rows) error {
	return d.read(ctx, "read the resources", func(c *conn) (err error) {
		if _, exact := f.Prefix(); exact {
			err = c.scan(f, rows)
		} else {
			err = c.inSnapshot(func() error { return c.scan(f, rows) })
		}
		if err == nil && consistency == storage.StrongConsistency {
			err = c.checkMoved(ctx, "list-resources")
		}
		return err
	})
}

// scan adds the matches of a filter to rows, in key order.
func (c *conn) scan(filter *driver.Filter, rows driver.Rows) (err error) {
	w, err := c.iterate("list-resources", nil, nil, filter)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ignoreRepeated(w.close(), err)) }()
	var version []byte
	for {
		more, err := w.next()
		if !more || err != nil {
			return err
		}
		version = position{w.stmt.ColumnInt64(1), w.stmt.ColumnInt64(2)}.appendVersion(version[:0])
		if err := rows.Add(w.key, version, w.stmt.ColumnRawBlob(3)); err != nil {
			return err
		}
	}
}

// Children implements driver.Driver.
func (d *database) Children(ctx context.Context, owner driver.Key, uid string) (ids []*resourcepb.ID, err error) {
	err = d.read(ctx, "read the owner references", func(c *conn) error {
		ids, err = c.children(ownerEntry(owner, uid))
		return err
	})
	return ids, err
}

func (c *conn) children(owner []byte) ([]*resourcepb.ID, error) {
	stmt, err := c.query("list-owned", owner)
	if err != nil {
		return nil, err
	}
	var ids []*resourcepb.ID
	for stmt.Step() {
		k, err := key.Parse(stmt.ColumnRawBlob(0))
		if err != nil {
			_ = stmt.Reset()
			return nil, err
		}
		ids = append(ids, k.ID(stmt.ColumnText(1), stmt.ColumnText(2)))
	}
	return ids, finish(stmt)
}
