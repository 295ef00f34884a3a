package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Children implements driver.Driver. It always asks the primary.
func (r *reader) Children(ctx context.Context, owner driver.Key, uid string) ([]*resourcepb.ID, error) {
	var ids []*resourcepb.ID
	err := r.lookUp(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, r.sql.owned, ownerHash(owner, uid))
		if err != nil {
			return err
		}
		ids = nil
		var keyBytes, uid, groupVersion []byte
		_, err = pgx.ForEachRow(rows, []any{&keyBytes, &uid, &groupVersion}, func() error {
			owned, err := key.Parse(keyBytes)
			if err != nil {
				return permanent{err}
			}
			ids = append(ids, owned.ID(string(uid), string(groupVersion)))
			return nil
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	return ids, nil
}
