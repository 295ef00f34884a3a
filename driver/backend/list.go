package backend

import (
	"context"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/check"
	"github.com/ashlar-dev/storage/resourcepb"
)

// List implements storage.Backend.
func (b *Backend[P]) List(ctx context.Context, consistency storage.ReadConsistency, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, namePrefix string) ([]*resourcepb.Resource, error) {
	f, err := check.Filter(typ, tenancy, namePrefix)
	ctx, done, err := b.begin(ctx, check.Consistency(consistency), err)
	if err != nil {
		return nil, err
	}
	defer done()
	var rows decodedRows
	if lister, ok := b.driver.(driver.Lister); ok {
		err = lister.List(ctx, consistency, &f, &rows)
	} else {
		_, err = b.driver.Scan(ctx, consistency, &f, &rows)
	}
	if err != nil {
		return nil, callError("list", nil, err)
	}
	return rows.resources, nil
}

func keyOf(res *resourcepb.Resource) []byte { return key.Of(res.GetId()).Bytes() }
