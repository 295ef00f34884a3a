package sqlite

import (
	"bytes"
	"context"

	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/codec"
)

// CheckColumns implements driver.ColumnChecker.
func (d *database) CheckColumns(ctx context.Context, after []byte, limit int) (wrong []driver.Key, last []byte, err error) {
	err = d.read(ctx, "check the columns", func(c *conn) error {
		wrong, last, err = c.checkColumns(after, limit)
		return err
	})
	return wrong, last, err
}

func (c *conn) checkColumns(after []byte, limit int) (wrong []driver.Key, last []byte, err error) {
	stmt, err := c.query("check-columns", above(after), keyUpperBound)
	if err != nil {
		return nil, nil, err
	}
	for rows, size := 0, 0; rows < limit && size < driver.ReadBytes && stmt.Step(); rows++ {
		last = stmt.ColumnBlob(0, nil)
		k, err := key.Parse(last)
		if err != nil {
			_ = stmt.Reset() // the first error is more specific
			return nil, nil, err
		}
		data := stmt.ColumnRawBlob(4)
		size += len(data)
		res, err := codec.DecodeOf(k, data, "")
		if err != nil {
			continue
		}
		id, owner := res.GetId(), ownerBytes(res.GetOwner())
		if !stmt.ColumnBool(5) || stmt.ColumnText(1) != id.GetUid() || stmt.ColumnText(2) != id.GetType().GetGroupVersion() || !bytes.Equal(stmt.ColumnRawBlob(3), owner) {
			wrong = append(wrong, k)
		}
	}
	return wrong, last, finish(stmt)
}
