package postgres

import (
	"context"
	"fmt"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/check"
	"github.com/ashlar-dev/storage/internal/codec"
)

// ReadAfter implements driver.BulkReader.
func (r *reader) ReadAfter(ctx context.Context, after []byte, limit int) ([]driver.Row, error) {
	if after == nil {
		after = []byte{} // before all keys
	}
	var found []driver.Row
	var name, version, data []byte
	begin := func() { found = make([]driver.Row, 0, limit) }
	arguments, into := []any{after, limit, driver.ReadBytes}, []any{&name, &version, &data}
	err := r.lookUp(ctx, begin, r.sql.readAfter, arguments, into, func() error {
		k, err := key.Parse(name)
		if err != nil {
			return permanent{err}
		}
		found = append(found, driver.Row{Key: k, Version: versionText(version), Data: data})
		return nil
	})
	return found, err
}

// Load implements driver.Loader.
func (w *writer) Load(ctx context.Context, rows []driver.Row) (err error) {
	mutations := make([]driver.Mutation, len(rows))
	for i := range rows {
		if mutations[i], err = creation(&rows[i], w.opts.MaxSize); err != nil {
			return fmt.Errorf("%v: %w", rows[i].Key, err)
		}
	}
	return w.Apply(ctx, mutations)
}

// creation returns the mutation that creates a resource as it is encoded.
func creation(row *driver.Row, maxSize int) (driver.Mutation, error) {
	res, err := codec.DecodeOf(row.Key, row.Data, "")
	if err != nil {
		return driver.Mutation{}, fmt.Errorf("%w: %w", storage.ErrInvalid, err)
	}
	k, err := check.IDWithUid("id", res.GetId())
	if err == nil && res.GetOwner() != nil {
		_, err = check.IDWithUid("owner", res.GetOwner())
	}
	if err == nil && len(row.Data) > maxSize {
		err = fmt.Errorf("%w: the resource has %d bytes, the most is %d", storage.ErrTooLarge, len(row.Data), maxSize)
	}
	return driver.Mutation{Verb: driver.Write, Key: k, Uid: res.GetId().GetUid(), Resource: res}, err
}
