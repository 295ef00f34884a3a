package backend

import (
	"context"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/check"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Read implements storage.Backend.
func (b *Backend[P]) Read(ctx context.Context, consistency storage.ReadConsistency, id *resourcepb.ID) (*resourcepb.Resource, error) {
	k, err := check.ID("id", id)
	if b.opts.BoundedGet {
		err = b.enter(ctx, check.Consistency(consistency), err)
	} else {
		var done context.CancelFunc
		if ctx, done, err = b.begin(ctx, check.Consistency(consistency), err); err == nil {
			defer done()
		}
	}
	if err != nil {
		return nil, err
	}
	res, err := b.driver.Get(ctx, consistency, k)
	if err == nil {
		err = answers(res, id)
	}
	if err != nil {
		return nil, callError("read", k, err)
	}
	return res, nil
}

// OwnerReferences implements storage.Backend.
func (b *Backend[P]) OwnerReferences(ctx context.Context, id *resourcepb.ID) ([]*resourcepb.ID, error) {
	k, err := check.IDWithUid("id", id)
	ctx, done, err := b.begin(ctx, err)
	if err != nil {
		return nil, err
	}
	defer done()
	ids, err := b.driver.Children(ctx, k, id.GetUid())
	if err != nil {
		return nil, callError("list the references to", k, err)
	}
	return ids, nil
}

// answers reports by its error whether a stored resource is the result of a read of id. The error for a group version mismatch
// shares no message with the caller.
func answers(stored *resourcepb.Resource, id *resourcepb.ID) error {
	if stored == nil || id.GetUid() != "" && id.GetUid() != stored.GetId().GetUid() {
		return storage.ErrNotFound
	}
	if id.GetType().GetGroupVersion() != stored.GetId().GetType().GetGroupVersion() {
		return storage.GroupVersionMismatchError{RequestedType: codec.CloneID(id).GetType(), Stored: stored}
	}
	return nil
}
