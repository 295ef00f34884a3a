package service

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"

	"github.com/oklog/ulid/v2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service/registry"
)

// TombstoneType is the type of the resources that the service leaves in the place of deleted ones, in the same tenancy. Clients may
// read, list, watch and delete them, but not write them.
var TombstoneType = &resourcepb.Type{Group: "internal", GroupVersion: "v1", Kind: "Tombstone"}

// tombstonePayload is the URL of a tombstone's payload, which clients of the API that this one is compatible with look for.
const tombstonePayload = "type.googleapis.com/hashicorp.consul.resource.Tombstone"

// tombstones is what is particular about TombstoneType: it lives in any scope, and operators may see it.
var tombstones = func() *registry.Type {
	open, _ := registry.NewOpen(registry.Type{}).Resolve(TombstoneType)
	t := *open
	t.Scope = registry.ScopeUndefined
	return &t
}()

// isTombstone reports whether a resource of a type is stored where tombstones are, whatever the group version, which is no part of a key.
func isTombstone(t *resourcepb.Type) bool {
	return storage.UnversionedTypeFrom(t) == storage.UnversionedTypeFrom(TombstoneType)
}

// newTombstone returns the tombstone of a deleted resource. Its name is made of the uid alone: with the name of the resource it could be
// longer than names are.
func newTombstone(deleted *resourcepb.ID) (*resourcepb.Resource, error) {
	payload, err := proto.Marshal(&resourcepb.Tombstone{Owner: deleted})
	if err != nil {
		return nil, err
	}
	return &resourcepb.Resource{
		Id: &resourcepb.ID{
			Uid: ulid.Make().String(), Name: tombstoneName(deleted.GetUid()), Type: proto.CloneOf(TombstoneType), Tenancy: deleted.GetTenancy(),
		},
		Generation: ulid.Make().String(),
		Data:       &anypb.Any{TypeUrl: tombstonePayload, Value: payload},
	}, nil
}

// tombstoneName returns the name of the tombstone of a resource with this uid. A uid that this service did not make may hold anything.
func tombstoneName(uid string) string {
	if parsed, err := ulid.ParseStrict(uid); err != nil || parsed.String() != uid {
		sum := sha256.Sum256([]byte(uid))
		return "tombstone-" + hex.EncodeToString(sum[:16])
	}
	return "tombstone-" + strings.ToLower(uid)
}

// Tombstone returns the id of the deleted resource that a tombstone stands for.
func Tombstone(res *resourcepb.Resource) (*resourcepb.ID, error) {
	var t resourcepb.Tombstone
	if err := proto.Unmarshal(res.GetData().GetValue(), &t); err != nil {
		return nil, err
	}
	if t.GetOwner().GetUid() == "" || t.GetOwner().GetType() == nil {
		return nil, errors.New("the tombstone names no resource")
	}
	return t.GetOwner(), nil
}

// deleteLeavingTombstone deletes a resource at the version that was read, and leaves a tombstone in the same transaction.
func (s *Server) deleteLeavingTombstone(ctx context.Context, res *resourcepb.Resource) error {
	id, version := res.GetId(), res.GetVersion()
	if isTombstone(id.GetType()) {
		return s.backend.DeleteCAS(ctx, id, version)
	}
	stone, err := newTombstone(id)
	if err != nil {
		return err
	}
	tx, ok := storage.As[storage.Transactor](s.backend)
	if !ok {
		// The tombstone comes first: a crash in between must not leave children that nobody deletes. If the deletion then fails, the
		// tombstone stays for the next one; the reaper leaves alone what an owner owns that is still there.
		if _, err := s.backend.WriteCAS(ctx, stone); err != nil && !alreadyExists(err) {
			return err
		}
		return s.backend.DeleteCAS(ctx, id, version)
	}
	_, err = tx.Commit(ctx, []storage.Op{{Delete: id, Version: version}, {Write: stone}})
	if failed := (*storage.OpError)(nil); errors.As(err, &failed) && failed.Index == 1 && alreadyExists(failed.Err) {
		return s.backend.DeleteCAS(ctx, id, version)
	}
	return err
}

// alreadyExists reports whether a resource could not be created because it exists.
func alreadyExists(err error) bool {
	return errors.Is(err, storage.ErrWrongUid) || errors.Is(err, storage.ErrCASFailure)
}
