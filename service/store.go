package service

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// store writes a resource at the version that was read. If another incarnation has replaced that resource since, the result is ErrCASFailure: the uid
// of the request, if any, was compared with the resource that was read.
func (s *Server) store(ctx context.Context, res *resourcepb.Resource) (*resourcepb.Resource, error) {
	if err := checkSize(res); err != nil {
		return nil, err
	}
	stored, err := s.commit(ctx, storage.Op{Write: res})
	if errors.Is(err, storage.ErrWrongUid) && !errors.Is(err, storage.ErrInconsistent) {
		return nil, storage.ErrCASFailure
	}
	if err != nil {
		return nil, err
	}
	mutationOf(ctx).After = stored[0]
	return stored[0], nil
}

// deleteAt deletes a resource at a version.
func (s *Server) deleteAt(ctx context.Context, id *resourcepb.ID, version string) error {
	_, err := s.commit(ctx, storage.Op{Delete: id, Version: version})
	return err
}

// commit applies the writes and deletions of a call: all or nothing, and only if the fence of the call, if it has one, is current. Several operations
// need a store with transactions, and so does a fence.
func (s *Server) commit(ctx context.Context, ops ...storage.Op) ([]*resourcepb.Resource, error) {
	fence, err := fenceOf(ctx)
	if err != nil {
		return nil, err
	}
	tx, ok := storage.As[storage.Transactor](s.backend)
	switch {
	case fence != nil && !ok:
		return nil, status.Error(codes.FailedPrecondition, "the store has no transactions: it cannot check the fence of a write")
	case fence != nil:
		return s.fencedCommits.commit(ctx, tx, fence, ops)
	case len(ops) > 1:
		return tx.Commit(ctx, ops)
	case ops[0].Write != nil:
		stored, err := s.backend.WriteCAS(ctx, ops[0].Write)
		return []*resourcepb.Resource{stored}, err
	}
	return []*resourcepb.Resource{nil}, s.backend.DeleteCAS(ctx, ops[0].Delete, ops[0].Version)
}

// fenceKey is the metadata key of a fence: an encoded resource with the id and the version of the record of a lock. A write with a fence succeeds
// only if that version is stored when the write is committed, so a caller that has lost the lock writes nothing.
const fenceKey = "ashlar-fence-bin"

// fenceOf returns the fence of a call, nil for none.
func fenceOf(ctx context.Context) (*storage.Op, error) {
	encoded := first(ctx, fenceKey)
	if encoded == "" {
		return nil, nil
	}
	var lock resourcepb.Resource
	if err := proto.Unmarshal([]byte(encoded), &lock); err != nil || lock.GetId().GetUid() == "" || lock.GetVersion() == "" {
		return nil, invalid("metadata %s invalid: expected an encoded resource with an id, a uid and a version", fenceKey)
	}
	if t := storage.UnversionedTypeFrom(lock.GetId().GetType()); t != (storage.UnversionedType{Group: "coordination", Kind: "Lock"}) {
		return nil, invalid("metadata %s invalid: expected the record of a lock, got the type %s/%s", fenceKey, t.Group, t.Kind)
	}
	return &storage.Op{Check: lock.GetId(), Version: lock.GetVersion()}, nil
}
