package sqlite

import (
	"context"

	"github.com/ashlar-dev/storage/internal/handover"
	"github.com/ashlar-dev/storage/internal/key"
)

var _ handover.Reader = (*Backend)(nil)

// ReadAfter returns a part of what is stored, for the tool that moves it to another store.
func (s *Backend) ReadAfter(ctx context.Context, after []byte, limit int) ([]handover.Row, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	c, err := s.readers.take(ctx)
	if err != nil {
		return nil, err
	}
	defer s.readers.give(c)
	rows, err := c.readAfter(after, limit)
	if err != nil {
		return nil, failed(ctx, "read on", err)
	}
	return rows, nil
}

func (c *conn) readAfter(after []byte, limit int) ([]handover.Row, error) {
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
	rows := make([]handover.Row, 0, limit)
	for bytes := 0; len(rows) < limit && bytes < handover.ReadBytes && stmt.Step(); {
		k, err := key.Parse(stmt.ColumnRawBlob(0))
		if err != nil {
			_ = stmt.Reset() // the first error tells more
			return nil, err
		}
		data := stmt.ColumnBlob(3, nil)
		rows = append(rows, handover.Row{Key: k, Version: mark{stmt.ColumnInt64(1), stmt.ColumnInt64(2)}.version(), Data: data})
		bytes += len(data)
	}
	return rows, finish(stmt)
}
