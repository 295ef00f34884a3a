package postgres

import (
	"bytes"
	"context"
	"slices"

	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/codec"
)

// CheckColumns implements driver.ColumnChecker.
func (l *lister) CheckColumns(ctx context.Context, after []byte, limit int) (wrong []driver.Key, last []byte, err error) {
	if after == nil {
		after = []byte{} // before all keys
	}
	var name, uid, groupVersion, owner, data []byte
	var agrees bool
	begin := func() { wrong, last = nil, nil }
	arguments, into := []any{after, limit, driver.ReadBytes}, []any{&name, &uid, &groupVersion, &owner, &data, &agrees}
	err = l.queryPrimary(ctx, begin, l.sql.checkColumns, arguments, into, func() error {
		last = slices.Clone(name)
		k, err := key.Parse(name)
		if err != nil {
			return permanent{err}
		}
		res, err := codec.DecodeOf(k, data, "")
		if err != nil {
			return nil
		}
		var expectedOwner []byte
		if res.GetOwner() != nil {
			expectedOwner = ownerHash(key.Of(res.GetOwner()), res.GetOwner().GetUid())
		}
		id := res.GetId()
		if !agrees || string(uid) != id.GetUid() || string(groupVersion) != id.GetType().GetGroupVersion() || !bytes.Equal(owner, expectedOwner) {
			wrong = append(wrong, k)
		}
		return nil
	})
	return wrong, last, err
}
