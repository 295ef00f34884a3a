package backend

import (
	"context"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/check"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/telemetry"
)

// Read implements storage.Backend.
func (b *Backend[P]) Read(ctx context.Context, consistency storage.ReadConsistency, id *resourcepb.ID) (_ *resourcepb.Resource, err error) {
	k, err := check.ID("id", id)
	var call runningCall
	if b.opts.BoundedGet {
		if err = b.enter(ctx, check.Consistency(consistency), err); err == nil {
			ctx, call = b.start(ctx, unbound, telemetry.Read)
		}
	} else {
		ctx, call, err = b.begin(ctx, telemetry.Read, check.Consistency(consistency), err)
	}
	if err != nil {
		return nil, err
	}
	defer call.end(&err)
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
func (b *Backend[P]) OwnerReferences(ctx context.Context, id *resourcepb.ID) (_ []*resourcepb.ID, err error) {
	k, err := check.IDWithUid("id", id)
	ctx, call, err := b.begin(ctx, telemetry.OwnerReferences, err)
	if err != nil {
		return nil, err
	}
	defer call.end(&err)
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
