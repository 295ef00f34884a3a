package driver

import (
	"context"
	"errors"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/check"
	"github.com/ashlar-dev/storage/resourcepb"
)

// WriteCAS implements storage.Backend.
func (b *Backend[P]) WriteCAS(ctx context.Context, res *resourcepb.Resource) (*resourcepb.Resource, error) {
	k, err := check.Resource(res, b.opts.MaxSize)
	ctx, done, err := b.begin(ctx, err)
	if err != nil {
		return nil, err
	}
	defer done()
	one := []Mutation{{Verb: Write, Key: k, Uid: res.GetId().GetUid(), Version: res.GetVersion(), Resource: res}}
	if err := b.driver.Apply(ctx, one); err != nil {
		return nil, failed("write", k, alone(err))
	}
	return one[0].result(), nil
}

// DeleteCAS implements storage.Backend.
func (b *Backend[P]) DeleteCAS(ctx context.Context, id *resourcepb.ID, version string) error {
	k, err := check.ID("id", id)
	ctx, done, err := b.begin(ctx, err)
	if err != nil {
		return err
	}
	defer done()
	if err := b.driver.Apply(ctx, []Mutation{{Verb: Delete, Key: k, Uid: id.GetUid(), Version: version}}); err != nil {
		return failed("delete", k, alone(err))
	}
	return nil
}

// alone is the error of the only mutation of an Apply.
func alone(err error) error {
	var refused *storage.OpError
	if errors.As(err, &refused) {
		return refused.Err
	}
	return err
}

// Commit implements storage.Transactor.
func (b *Backend[P]) Commit(ctx context.Context, ops []storage.Op) ([]*resourcepb.Resource, error) {
	all, err := mutations(ops, b.opts.MaxOps, b.opts.MaxSize)
	ctx, done, err := b.begin(ctx, err)
	if err != nil {
		return nil, err
	}
	defer done()
	if len(ops) == 0 {
		return nil, nil
	}
	if err := b.driver.Apply(ctx, all); err != nil {
		var refused *storage.OpError
		if errors.As(err, &refused) {
			return nil, &storage.OpError{Index: refused.Index, Err: failed("commit", all[refused.Index].Key, refused.Err)}
		}
		return nil, failed("commit", nil, err)
	}
	results := make([]*resourcepb.Resource, len(ops))
	for i := range all {
		if all[i].Verb == Write {
			results[i] = all[i].result()
		}
	}
	return results, nil
}
