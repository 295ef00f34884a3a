package driver

import (
	"context"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/cas"
	"github.com/ashlar-dev/storage/internal/check"
	"github.com/ashlar-dev/storage/internal/message"
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
		err = cas.Read(res, id)
	}
	if err != nil {
		return nil, failed("read", k, ownType(err))
	}
	return res, nil
}

// ownType has a mismatch of group versions not share the caller's message.
func ownType(err error) error {
	if mismatch, ok := err.(storage.GroupVersionMismatchError); ok { //nolint:errorlint // cas.Read returns it as it is
		mismatch.RequestedType = message.CloneID(&resourcepb.ID{Type: mismatch.RequestedType}).Type
		return mismatch
	}
	return err
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
		return nil, failed("list the references to", k, err)
	}
	return ids, nil
}
