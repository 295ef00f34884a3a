package sqlite

import (
	"context"

	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
)

// ReadAfter implements driver.BulkReader.
func (s *handle) ReadAfter(ctx context.Context, after []byte, limit int) ([]driver.Row, error) {
	c, err := s.readers.take(ctx)
	if err != nil {
		return nil, err
	}
	defer s.readers.give(c)
	rows, err := c.readAfter(after, limit)
	if err != nil {
		return nil, failed(ctx, "read the rows", err)
	}
	return rows, nil
}

func (c *conn) readAfter(after []byte, limit int) ([]driver.Row, error) {
	stmt, err := c.stmt(scan)
	if err != nil {
		return nil, err
	}
	if after != nil {
		after = append(after[:len(after):len(after)], 0) // the first that may follow
	}
	if err := bindBytes(stmt, 1, after); err != nil {
		return nil, err
	}
	if err := stmt.BindBlob(2, afterAll); err != nil {
		return nil, err
	}
	rows := make([]driver.Row, 0, limit)
	for bytes := 0; len(rows) < limit && bytes < driver.ReadBytes && stmt.Step(); {
		k, err := key.Parse(stmt.ColumnRawBlob(0))
		if err != nil {
			_ = stmt.Reset() // the first error tells more
			return nil, err
		}
		data := stmt.ColumnBlob(3, nil)
		rows = append(rows, driver.Row{Key: k, Version: mark{stmt.ColumnInt64(1), stmt.ColumnInt64(2)}.version(), Data: data})
		bytes += len(data)
	}
	return rows, finish(stmt)
}
