package inmem

import (
	"context"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/cas"
	"github.com/ashlar-dev/storage/internal/check"
	"github.com/ashlar-dev/storage/internal/handover"
	"github.com/ashlar-dev/storage/internal/key"
	"github.com/ashlar-dev/storage/internal/message"
	"github.com/ashlar-dev/storage/resourcepb"
)

// WriteCAS implements storage.Backend.
func (b *Backend) WriteCAS(ctx context.Context, res *resourcepb.Resource) (*resourcepb.Resource, error) {
	k, err := check.Resource(res, b.maxSize)
	if err := b.begin(ctx, err); err != nil {
		return nil, err
	}
	size := message.Size(res)
	mine := message.Clone(res) // before the lock
	it, err := b.store.write(k, mine, size, handover.GuardOf(ctx))
	if err != nil {
		return nil, failed("write", k, err)
	}
	return message.Clone(it.resource), nil
}

func (s *store) write(k key.Key, res *resourcepb.Resource, size int, guard *handover.Guard) (*item, error) {
	s.lockForWriting()
	defer s.mu.Unlock()
	if err := s.refused(guard); err != nil {
		return nil, err
	}
	if err := cas.Write(s.items[k].stored(), res.Id.Uid, res.Version); err != nil {
		return nil, err
	}
	it := s.put(k, res, size)
	s.announce()
	return it, nil
}

// DeleteCAS implements storage.Backend.
func (b *Backend) DeleteCAS(ctx context.Context, id *resourcepb.ID, version string) error {
	k, err := check.ID("id", id)
	if err := b.begin(ctx, err); err != nil {
		return err
	}
	s := b.store
	s.lockForWriting()
	defer s.mu.Unlock()
	it := s.items[k]
	remove, err := cas.Delete(it.stored(), id.Uid, version)
	if err == nil && remove {
		err = s.refused(handover.GuardOf(ctx))
	}
	if err != nil {
		return failed("delete", k, err)
	}
	if remove {
		s.remove(it)
		s.announce()
	}
	return nil
}

// Commit implements storage.Transactor.
func (b *Backend) Commit(ctx context.Context, ops []storage.Op) ([]*resourcepb.Resource, error) {
	keys, err := check.Ops(ops, b.MaxOps(), b.maxSize)
	if err := b.begin(ctx, err); err != nil || len(ops) == 0 {
		return nil, err
	}
	results := make([]*resourcepb.Resource, len(ops))
	sizes := make([]int, len(ops))
	for i, op := range ops {
		if op.Write != nil {
			sizes[i] = message.Size(op.Write)
			results[i] = message.Clone(op.Write)
		}
	}
	if err := b.store.commit(ops, keys, results, sizes, handover.GuardOf(ctx)); err != nil {
		return nil, err
	}
	for i, res := range results {
		results[i] = message.Clone(res)
	}
	return results, nil
}

// commit decides all operations, then carries them out. results holds what is to be written, and afterwards what is stored.
func (s *store) commit(ops []storage.Op, keys []key.Key, results []*resourcepb.Resource, sizes []int, guard *handover.Guard) error {
	s.lockForWriting()
	defer s.mu.Unlock()
	if err := s.refused(guard); err != nil {
		return err
	}
	removed := make([]bool, len(ops))
	for i, op := range ops {
		stored := s.items[keys[i]].stored()
		var err error
		switch {
		case op.Write != nil:
			err = cas.Write(stored, op.Write.Id.Uid, op.Write.Version)
		case op.Delete != nil:
			removed[i], err = cas.Delete(stored, op.Delete.Uid, op.Version)
		default:
			err = cas.Check(stored, op.Check.Uid, op.Version)
		}
		if err != nil {
			return &storage.OpError{Index: i, Err: failed("commit", keys[i], err)}
		}
	}
	s.joint = int64(s.at) + 1
	defer func() { s.joint = 0 }()
	changed := false
	for i, op := range ops {
		switch {
		case op.Write != nil:
			results[i] = s.put(keys[i], results[i], sizes[i]).resource
			changed = true
		case removed[i]:
			s.remove(s.items[keys[i]])
			changed = true
		}
	}
	if changed {
		s.announce()
	}
	return nil
}
