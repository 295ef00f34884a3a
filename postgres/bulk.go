package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/check"
	"github.com/ashlar-dev/storage/internal/handover"
	"github.com/ashlar-dev/storage/internal/key"
	"github.com/ashlar-dev/storage/internal/message"
)

var (
	_ handover.Reader = (*Backend)(nil)
	_ handover.Loader = (*Backend)(nil)
)

// ReadAfter returns a part of what is stored, for the tool that moves it to another store.
func (b *Backend) ReadAfter(ctx context.Context, after []byte, limit int) ([]handover.Row, error) {
	ctx, done, err := b.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if after == nil {
		after = []byte{} // before all keys
	}
	var found []handover.Row
	err = b.lookUp(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		found = make([]handover.Row, 0, limit)
		rows, err := conn.Query(ctx, b.sql.readAfter, after, limit, handover.ReadBytes)
		if err != nil {
			return err
		}
		var name, version, data []byte
		_, err = pgx.ForEachRow(rows, []any{&name, &version, &data}, func() error {
			k, err := key.Parse(name)
			if err != nil {
				return failed{err}
			}
			found = append(found, handover.Row{Key: k, Version: versionText(version), Data: data})
			return nil
		})
		return err
	})
	b.answered()
	if err != nil {
		return nil, fmt.Errorf("read on: %w", err)
	}
	return found, nil
}

// Load creates resources, all or none, for the tool that moves them here from another store.
func (b *Backend) Load(ctx context.Context, rows []handover.Row) error {
	ctx, done, err := b.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	ops := make([]*op, len(rows))
	for i := range rows {
		if ops[i], err = newLoad(&rows[i], b.opts.MaxSize); err != nil {
			return fmt.Errorf("load %v: %w", rows[i].Key, err)
		}
	}
	if len(ops) == 0 {
		return nil
	}
	if err := b.commit(ctx, ops); err != nil {
		return fmt.Errorf("load: %w", err)
	}
	return nil
}

// newLoad returns the operation that creates a resource as it is encoded.
func newLoad(row *handover.Row, maxSize int) (*op, error) {
	res, err := message.DecodeOf(row.Key, row.Data, "")
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
	o := newOp(opWrite, k, res.GetId().GetUid(), "")
	o.groupVersion, o.data = []byte(res.GetId().GetType().GetGroupVersion()), row.Data
	if res.GetOwner() != nil {
		o.owner = ownerHash(res.GetOwner())
	}
	return o, nil
}
