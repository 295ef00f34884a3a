package sqlite

import (
	"context"

	"github.com/ashlar-dev/storage/internal/check"
	"github.com/ashlar-dev/storage/internal/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// ownerBytes is how a resource names its owner: the owner's key and uid joined by NUL, or nil.
func ownerBytes(owner *resourcepb.ID) []byte {
	if owner == nil {
		return nil
	}
	return append(append(key.Of(owner).Bytes(), 0), owner.Uid...)
}

// OwnerReferences implements storage.Backend.
func (s *Backend) OwnerReferences(ctx context.Context, id *resourcepb.ID) ([]*resourcepb.ID, error) {
	k, err := check.IDWithUid("id", id)
	if err := s.enter(ctx, err); err != nil {
		return nil, err
	}
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	c, err := s.readers.take(ctx)
	if err != nil {
		return nil, about("list what is owned by", k, err)
	}
	defer s.readers.give(c)
	ids, err := c.owned(ownerBytes(id))
	if err != nil {
		return nil, about("list what is owned by", k, failed(ctx, "read the index", err))
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
