package backend

import (
	"context"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/check"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/telemetry"
)

// List implements storage.Backend.
func (b *Backend[P]) List(ctx context.Context, consistency storage.ReadConsistency, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, namePrefix string) (_ []*resourcepb.Resource, err error) {
	f, err := check.Filter(typ, tenancy, namePrefix)
	ctx, call, err := b.begin(ctx, telemetry.List, check.Consistency(consistency), err)
	if err != nil {
		return nil, err
	}
	defer call.end(&err)
	var rows decodedRows
	if err := b.driver.List(ctx, consistency, &f, &rows); err != nil {
		return nil, callError("list", nil, err)
	}
	return rows.resources, nil
}

// decodedRows are Rows in memory, decoded on arrival.
type decodedRows struct{ resources []*resourcepb.Resource }

// Restart implements Rows.
func (d *decodedRows) Restart() { d.resources = nil }

// Add implements Rows.
func (d *decodedRows) Add(key, version, data []byte) error {
	res, err := codec.DecodeAt(key, data, string(version))
	if err != nil {
		return err
	}
	d.resources = append(d.resources, res)
	return nil
}

// AddResource implements Rows.
func (d *decodedRows) AddResource(res *resourcepb.Resource) error {
	d.resources = append(d.resources, res)
	return nil
}

// addVersion adds a result of Historian.ReadAt.
func (d *decodedRows) addVersion(v *driver.Version) error {
	res, err := v.Decode()
	if err == nil {
		d.resources = append(d.resources, res)
	}
	return err
}
