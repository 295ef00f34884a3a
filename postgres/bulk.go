package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/check"
	"github.com/ashlar-dev/storage/internal/codec"
)

// ReadAfter implements driver.BulkReader.
func (b *handle) ReadAfter(ctx context.Context, after []byte, limit int) ([]driver.Row, error) {
	if after == nil {
		after = []byte{} // before all keys
	}
	var found []driver.Row
	err := b.lookUp(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		found = make([]driver.Row, 0, limit)
		rows, err := conn.Query(ctx, b.sql.readAfter, after, limit, driver.ReadBytes)
		if err != nil {
			return err
		}
		var name, version, data []byte
		_, err = pgx.ForEachRow(rows, []any{&name, &version, &data}, func() error {
			k, err := key.Parse(name)
			if err != nil {
				return failed{err}
			}
			found = append(found, driver.Row{Key: k, Version: versionText(version), Data: data})
			return nil
		})
		return err
	})
	b.answered()
	return found, err
}

// Load implements driver.Loader.
func (b *handle) Load(ctx context.Context, rows []driver.Row) (err error) {
	ops := make([]*op, len(rows))
	for i := range rows {
		if ops[i], err = newLoad(&rows[i], b.opts.MaxSize); err != nil {
			return fmt.Errorf("%v: %w", rows[i].Key, err)
		}
	}
	return b.commit(ctx, ops)
}

// newLoad returns the operation that creates a resource as it is encoded.
func newLoad(row *driver.Row, maxSize int) (*op, error) {
	res, err := codec.DecodeOf(row.Key, row.Data, "")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", storage.ErrInvalid, err)
	}
	k, err := check.IDWithUid("id", res.GetId())
	if err == nil && res.GetOwner() != nil {
		_, err = check.IDWithUid("owner", res.GetOwner())
	}
	if err == nil && len(row.Data) > maxSize {
		err = fmt.Errorf("%w: the resource has %d bytes, the most is %d", storage.ErrTooLarge, len(row.Data), maxSize)
	}
	if err != nil {
		return nil, err
	}
	return newOp(&driver.Mutation{Verb: driver.Write, Key: k, Uid: res.GetId().GetUid(), Resource: res})
}
