package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage/internal/check"
	"github.com/ashlar-dev/storage/internal/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// OwnerReferences implements storage.Backend. It always asks the primary.
func (b *Backend) OwnerReferences(ctx context.Context, id *resourcepb.ID) ([]*resourcepb.ID, error) {
	k, err := check.IDWithUid("id", id)
	ctx, done, err := b.begin(ctx, err)
	if err != nil {
		return nil, err
	}
	defer done()
	var ids []*resourcepb.ID
	err = b.lookUp(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, b.sql.owned, ownerHash(id))
		if err != nil {
			return err
		}
		ids = nil
		var keyBytes, uid, groupVersion []byte
		_, err = pgx.ForEachRow(rows, []any{&keyBytes, &uid, &groupVersion}, func() error {
			owned, err := key.Parse(keyBytes)
			if err != nil {
				return failed{err}
			}
			ids = append(ids, owned.ID(string(uid), string(groupVersion)))
			return nil
		})
		return err
	})
	b.answered()
	if err != nil {
		return nil, fmt.Errorf("references to %v: %w", k, err)
	}
	return ids, nil
}
