package postgres

import (
	"context"

	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Children implements driver.Driver. It always asks the primary.
func (r *reader) Children(ctx context.Context, owner driver.Key, uid string) ([]*resourcepb.ID, error) {
	var ids []*resourcepb.ID
	var keyBytes, ownedUid, groupVersion []byte
	into := []any{&keyBytes, &ownedUid, &groupVersion}
	err := r.lookUp(ctx, func() { ids = nil }, r.sql.owned, []any{ownerHash(owner, uid)}, into, func() error {
		owned, err := key.Parse(keyBytes)
		if err != nil {
			return permanent{err}
		}
		ids = append(ids, owned.ID(string(ownedUid), string(groupVersion)))
		return nil
	})
	if err != nil {
		return nil, err
	}
	return ids, nil
}
