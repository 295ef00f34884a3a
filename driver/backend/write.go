package backend

import (
	"context"
	"errors"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/check"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/telemetry"
)

// WriteCAS implements storage.Backend.
func (b *Backend[P]) WriteCAS(ctx context.Context, res *resourcepb.Resource) (_ *resourcepb.Resource, err error) {
	k, err := check.Resource(res, b.opts.MaxSize)
	ctx, call, err := b.begin(ctx, telemetry.Write, err)
	if err != nil {
		return nil, err
	}
	defer call.end(&err)
	one := []driver.Mutation{{Verb: driver.Write, Key: k, Uid: res.GetId().GetUid(), Version: res.GetVersion(), Resource: res}}
	if err := b.apply(ctx, one); err != nil {
		return nil, callError("write", k, singleError(err))
	}
	return result(&one[0]), nil
}

// DeleteCAS implements storage.Backend.
func (b *Backend[P]) DeleteCAS(ctx context.Context, id *resourcepb.ID, version string) (err error) {
	k, err := check.ID("id", id)
	ctx, call, err := b.begin(ctx, telemetry.Delete, err)
	if err != nil {
		return err
	}
	defer call.end(&err)
	if err := b.apply(ctx, []driver.Mutation{{Verb: driver.Delete, Key: k, Uid: id.GetUid(), Version: version}}); err != nil {
		return callError("delete", k, singleError(err))
	}
	return nil
}

// apply applies mutations. If an attempt may have been applied, the error does not match the refusal of a later attempt.
func (b *Backend[P]) apply(ctx context.Context, mutations []driver.Mutation) error {
	err := b.driver.Apply(ctx, mutations)
	if errors.Is(err, storage.ErrInconsistent) && isRefusal(err) {
		return driver.Uncertain(err)
	}
	return err
}

// isRefusal reports whether callers conclude from an error that a write has changed nothing. A caller that reads as well expects ErrCompacted from
// the read.
func isRefusal(err error) bool {
	var refused *storage.OpError
	return errors.As(err, &refused) || errors.Is(err, storage.ErrFenced) || errors.Is(err, storage.ErrCompacted)
}

// singleError returns the error of the only mutation of an Apply.
func singleError(err error) error {
	var refused *storage.OpError
	if errors.As(err, &refused) {
		return refused.Err
	}
	return err
}

// Commit implements storage.Transactor.
func (b *Backend[P]) Commit(ctx context.Context, ops []storage.Op) (_ []*resourcepb.Resource, err error) {
	all, err := mutations(ops, b.opts.MaxOps, b.opts.MaxSize)
	ctx, call, err := b.begin(ctx, telemetry.Commit, err)
	if err != nil {
		return nil, err
	}
	defer call.end(&err)
	if len(ops) == 0 {
		return nil, nil
	}
	if err := b.apply(ctx, all); err != nil {
		var refused *storage.OpError
		if errors.As(err, &refused) {
			return nil, &storage.OpError{Index: refused.Index, Err: callError("commit", all[refused.Index].Key, refused.Err)}
		}
		return nil, callError("commit", nil, err)
	}
	results := make([]*resourcepb.Resource, len(ops))
	for i := range all {
		if all[i].Verb == driver.Write {
			results[i] = result(&all[i])
		}
	}
	return results, nil
}

// mutations validates the operations of a transaction and returns them as mutations.
func mutations(ops []storage.Op, maxOps, maxSize int) ([]driver.Mutation, error) {
	keys, err := check.Ops(ops, maxOps, maxSize)
	if err != nil {
		return nil, err
	}
	all := make([]driver.Mutation, len(ops))
	for i := range ops {
		all[i] = mutation(keys[i], &ops[i])
	}
	return all, nil
}

func mutation(k key.Key, op *storage.Op) driver.Mutation {
	switch {
	case op.Write != nil:
		return driver.Mutation{Verb: driver.Write, Key: k, Uid: op.Write.GetId().GetUid(), Version: op.Write.GetVersion(), Resource: op.Write}
	case op.Delete != nil:
		return driver.Mutation{Verb: driver.Delete, Key: k, Uid: op.Delete.GetUid(), Version: op.Version, Present: op.Present}
	default:
		return driver.Mutation{Verb: driver.Check, Key: k, Uid: op.Check.GetUid(), Version: op.Version}
	}
}

// result returns the resource that a write has stored, as a copy.
func result(m *driver.Mutation) *resourcepb.Resource {
	out := codec.Clone(m.Resource)
	out.Version = m.NewVersion
	return out
}
