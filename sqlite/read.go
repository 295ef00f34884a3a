package sqlite

import (
	"context"
	"errors"
	"sync"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Every read sees the newest commit of the file, so eventual reads are strong too.

// buffers holds buffers for encoded resources between the connection and the decoder.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// Get implements driver.Driver.
func (d *database) Get(ctx context.Context, _ storage.ReadConsistency, k driver.Key) (*resourcepb.Resource, error) {
	c, err := d.readers.take(ctx)
	if err != nil {
		return nil, err
	}
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	*buffer = k.Append((*buffer)[:0])
	exists, m, err := c.get(buffer)
	d.readers.give(c)
	if err != nil {
		return nil, statementError(ctx, "read the resource", err)
	}
	if !exists {
		return nil, nil
	}
	res, err := codec.DecodeOf(k, *buffer, m.version())
	var damaged *storage.DamagedError
	if errors.As(err, &damaged) {
		d.identify(ctx, k, damaged)
	}
	return res, err
}

// identify adds the stored uid to the error, so that the caller can rewrite or delete the damaged resource.
func (d *database) identify(ctx context.Context, k driver.Key, damaged *storage.DamagedError) {
	// If this fails, report the damage without a uid.
	_ = d.read(ctx, "read the uid", func(c *conn) error {
		t := txn{conn: c}
		row, err := t.decisionState(k.Bytes())
		if err == nil && row.Version == damaged.Version {
			damaged.ID.Uid = row.Uid
		}
		return err
	})
}

// get reads the value of a key. The buffer contains the key and receives the value.
func (c *conn) get(buffer *[]byte) (exists bool, m position, err error) {
	stmt, err := c.stmt(get)
	if err != nil {
		return false, m, err
	}
	if err := stmt.BindBlob(1, *buffer); err != nil {
		return false, m, err
	}
	if exists = stmt.Step(); exists {
		m = position{stmt.ColumnInt64(0), stmt.ColumnInt64(1)}
		*buffer = stmt.ColumnBlob(2, (*buffer)[:0])
	}
	return exists, m, finish(stmt)
}
