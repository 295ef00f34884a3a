package sqlite

import (
	"context"

	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// ownerBytes is how a resource names its owner: the owner's key and uid joined by NUL, or nil.
func ownerBytes(owner *resourcepb.ID) []byte {
	if owner == nil {
		return nil
	}
	return edge(key.Of(owner), owner.GetUid())
}

func edge(owner driver.Key, uid string) []byte {
	return append(append(owner.Bytes(), 0), uid...)
}

// Children implements driver.Driver.
func (s *handle) Children(ctx context.Context, owner driver.Key, uid string) ([]*resourcepb.ID, error) {
	c, err := s.readers.take(ctx)
	if err != nil {
		return nil, err
	}
	defer s.readers.give(c)
	ids, err := c.owned(edge(owner, uid))
	if err != nil {
		return nil, failed(ctx, "read the index", err)
	}
	return ids, nil
}

func (c *conn) owned(owner []byte) ([]*resourcepb.ID, error) {
	stmt, err := c.stmt(owned)
	if err != nil {
		return nil, err
	}
	if err := stmt.BindBlob(1, owner); err != nil {
		return nil, err
	}
	var ids []*resourcepb.ID
	for stmt.Step() {
		k, err := key.Parse(stmt.ColumnRawBlob(0))
		if err != nil {
			_ = stmt.Reset()
			return nil, err
		}
		ids = append(ids, k.ID(stmt.ColumnText(1), stmt.ColumnText(2)))
	}
	return ids, finish(stmt)
}
