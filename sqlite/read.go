package sqlite

import (
	"context"
	"errors"
	"sync"

	"github.com/ncruces/go-sqlite3"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Every read sees the newest commit of the file that it reads, so eventual reads differ from strong ones only in what they check: see checkInterval
// and checkMoved.

// buffers holds buffers for encoded resources between the connection and the decoder.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// Get implements driver.Driver.
func (d *database) Get(ctx context.Context, consistency storage.ReadConsistency, k driver.Key) (*resourcepb.Resource, error) {
	age := checkInterval
	if consistency == storage.StrongConsistency {
		age = 0
	}
	c, err := d.readers.takeChecked(ctx, age)
	if err != nil {
		return nil, err
	}
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	*buffer = k.Append((*buffer)[:0])
	exists, m, err := c.get(buffer)
	if err == nil && consistency == storage.StrongConsistency {
		err = c.checkMoved(ctx, "read-resource")
	}
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
	exists, err = c.queryRow("read-resource", func(s *sqlite3.Stmt) {
		m = position{s.ColumnInt64(0), s.ColumnInt64(1)}
		*buffer = s.ColumnBlob(2, (*buffer)[:0])
	}, *buffer)
	return exists, m, err
}
