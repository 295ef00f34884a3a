package service

import (
	"cmp"
	"context"
	"errors"
	"maps"

	"github.com/oklog/ulid/v2"
	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service/registry"
)

// Write creates or updates a resource.
//
// With a version in it, it is written only if that version is stored: else Aborted. Without, it is written over whatever is stored, and
// Aborted means that others wrote the same resource all the time. With a uid, only the resource with that uid is updated, and nothing is
// created: else FailedPrecondition. With create, nothing is updated: Aborted if something is stored.
//
// The write that takes the last finalizer from a resource that is marked for deletion deletes it. The answer is then what was deleted.
func (s *Server) Write(ctx context.Context, req *resourcepb.WriteRequest) (*resourcepb.WriteResponse, error) {
	if req.GetCreate() && req.GetResource().GetVersion() != "" {
		return nil, invalid("resource.version invalid: what is to be created has none")
	}
	if req.GetCreate() && req.GetResource().GetId().GetUid() != "" {
		return nil, invalid("resource.id.uid invalid: what is to be created gets one from the service")
	}
	in, err := s.prepare(ctx, req.GetResource())
	if err != nil {
		return nil, err
	}
	in.create = req.GetCreate()
	var stored *resourcepb.Resource
	err = retryConflicts(ctx, in.create || in.requested.GetVersion() != "", func(consistency storage.ReadConsistency) (err error) {
		stored, err = s.write(ctx, consistency, in)
		return err
	})
	if err != nil {
		return nil, s.toStatus(ctx, "write", err)
	}
	return &resourcepb.WriteResponse{Resource: stored}, nil
}

// write reads what is stored, and creates or updates it.
func (s *Server) write(ctx context.Context, consistency storage.ReadConsistency, in *input) (*resourcepb.Resource, error) {
	key := idIn(in.requested.GetId().GetTenancy(), in.requested.GetId())
	key.Uid = ""
	current, err := s.readCurrent(ctx, consistency, key)
	switch {
	case errors.Is(err, storage.ErrNotFound):
		return s.create(ctx, in)
	case err != nil:
		return nil, err
	}
	if err := s.authStatus(ctx, in.t.MayWrite(in.caller, current)); err != nil {
		return nil, decisionError{err} // who may not write what is stored must not replace it by what they may write
	}
	switch {
	case in.create:
		return nil, decisionError{storage.ErrCASFailure}
	case in.requested.GetId().GetUid() != "" && in.requested.GetId().GetUid() != current.GetId().GetUid():
		return nil, decisionError{storage.ErrWrongUid}
	case in.requested.GetVersion() != "" && in.requested.GetVersion() != current.GetVersion():
		return nil, decisionError{storage.ErrCASFailure}
	}
	return s.update(ctx, in, current)
}

// readCurrent returns the resource that is stored under an id, of whatever group version.
func (s *Server) readCurrent(ctx context.Context, consistency storage.ReadConsistency, id *resourcepb.ID) (*resourcepb.Resource, error) {
	res, err := s.backend.Read(ctx, consistency, id)
	if mismatch := (storage.GroupVersionMismatchError{}); errors.As(err, &mismatch) {
		return mismatch.Stored, nil
	}
	return res, err
}

// create stores a resource where there is none.
func (s *Server) create(ctx context.Context, in *input) (*resourcepb.Resource, error) {
	switch {
	case in.hookErr != nil:
		return nil, decisionError{in.hookErr} // what is stored may be marked for deletion
	case in.requested.GetId().GetUid() != "":
		return nil, decisionError{storage.ErrWrongUid} // the resource that is meant is gone
	case in.requested.GetVersion() != "":
		return nil, decisionError{storage.ErrCASFailure}
	case len(in.requested.GetStatus()) > 0:
		return nil, decisionError{errStatusWritten}
	case hasDeletionMark(in.mutated):
		return nil, decisionError{invalid("metadata.%s cannot be set on a resource that does not exist", deletionTimestampKey)}
	}
	if err := s.checkUnmarked(ctx, in.requested.GetId().GetTenancy()); err != nil {
		return nil, err
	}
	res := copyOf(in.mutated)
	if owner := res.GetOwner(); owner != nil && owner.GetUid() == "" {
		uid, err := s.ownerUid(ctx, in, owner)
		if err != nil {
			return nil, err
		}
		res.Owner = idIn(owner.GetTenancy(), owner)
		res.Owner.Uid = uid
	}
	res.Id = idIn(res.GetId().GetTenancy(), res.GetId())
	res.Id.Uid = ulid.Make().String()
	res.Generation = ulid.Make().String()
	return s.store(ctx, res)
}

// store writes a resource at the version that was read. That another incarnation of it took its place since is a failed compare-and-swap:
// the caller's uid, if there was one, was compared with what was read.
func (s *Server) store(ctx context.Context, res *resourcepb.Resource) (*resourcepb.Resource, error) {
	if err := checkSize(res); err != nil {
		return nil, err
	}
	stored, err := s.backend.WriteCAS(ctx, res)
	if errors.Is(err, storage.ErrWrongUid) {
		return nil, storage.ErrCASFailure
	}
	return stored, err
}

// ownerUid returns the uid of the resource that is stored under the id of an owner. It is for those only who may read that resource: else
// anybody would learn what exists, and its uid.
func (s *Server) ownerUid(ctx context.Context, in *input, owner *resourcepb.ID) (string, error) {
	none := invalid("resource.owner does not exist")
	t, err := s.resolve(owner.GetType())
	if err != nil || owner.GetTenancy() == nil { // it is not filled in: an owner is named in full
		return "", none
	}
	caller := in.caller
	if !proto.Equal(owner.GetTenancy(), in.requested.GetId().GetTenancy()) {
		if caller, err = s.caller(ctx, owner.GetTenancy()); err != nil {
			return "", err
		}
	}
	needed := t.MayRead(caller, owner, nil)
	if needed != nil && !errors.Is(needed, registry.ErrNeedResource) {
		return "", s.authStatus(ctx, needed)
	}
	res, err := s.readCurrent(ctx, storage.StrongConsistency, owner)
	switch {
	case errors.Is(err, storage.ErrNotFound):
		return "", none
	case err == nil && needed != nil:
		err = s.authStatus(ctx, t.MayRead(caller, owner, res))
	}
	return res.GetId().GetUid(), err
}

// errStatusWritten refuses a status that did not come by WriteStatus.
var errStatusWritten = invalid("resource.status can only be set using the WriteStatus endpoint")

// update replaces a stored resource. What the caller left out that only the service may change is carried over.
func (s *Server) update(ctx context.Context, in *input, current *resourcepb.Resource) (*resourcepb.Resource, error) {
	proposed := in.mutated
	if hasDeletionMark(current) {
		proposed = in.requested // what is to be deleted is not completed and not validated any more
	} else if in.hookErr != nil {
		return nil, decisionError{in.hookErr}
	}
	res := copyOf(proposed)
	res.Id = idIn(proposed.GetId().GetTenancy(), proposed.GetId())
	res.Id.Uid = current.GetId().GetUid()
	if res.Version == "" {
		res.Version = current.GetVersion()
		res.Metadata = carryMarks(res.GetMetadata(), current.GetMetadata())
	}
	owner, err := unchangedOwner(res.GetOwner(), current.GetOwner())
	if err != nil {
		return nil, err
	}
	res.Owner = owner
	if len(res.GetStatus()) == 0 {
		res.Status = current.GetStatus()
	} else if !equalStatus(res, current) {
		return nil, decisionError{errStatusWritten}
	}
	deleting, err := checkMarks(current, res)
	if err != nil {
		return nil, decisionError{cmp.Or(in.hookErr, err)}
	}
	if deleting == noStep {
		if err := s.checkUnmarked(ctx, res.GetId().GetTenancy()); err != nil {
			return nil, err
		}
	}
	res.Generation = ulid.Make().String()
	if deleting == stepDelete {
		return res, s.deleteLeavingTombstone(ctx, current)
	}
	return s.store(ctx, res)
}

// equalStatus reports whether two resources have the same statuses.
func equalStatus(a, b *resourcepb.Resource) bool {
	return maps.EqualFunc(a.GetStatus(), b.GetStatus(), func(a, b *resourcepb.Status) bool { return proto.Equal(a, b) })
}

// unchangedOwner returns the stored owner if the one asked for is the same; its uid may be missing.
func unchangedOwner(asked, stored *resourcepb.ID) (*resourcepb.ID, error) {
	if asked != nil && stored != nil && asked.GetUid() == "" {
		asked = idIn(asked.GetTenancy(), asked)
		asked.Uid = stored.GetUid()
	}
	if !proto.Equal(asked, stored) {
		return nil, decisionError{invalid("owner cannot be changed")}
	}
	return stored, nil
}

// carryMarks returns the metadata of a write that names no version, with the marks of the stored resource where it has none.
func carryMarks(asked, stored map[string]string) map[string]string {
	for _, mark := range []string{deletionTimestampKey, finalizersKey} {
		value, there := stored[mark]
		if _, given := asked[mark]; there && !given {
			asked = maps.Clone(asked)
			if asked == nil {
				asked = map[string]string{}
			}
			asked[mark] = value
		}
	}
	return asked
}

// copyOf returns a resource with the same fields, which share what they point to.
func copyOf(res *resourcepb.Resource) *resourcepb.Resource {
	c := &resourcepb.Resource{
		Id: res.GetId(), Owner: res.GetOwner(), Version: res.GetVersion(), Generation: res.GetGeneration(),
		Metadata: res.GetMetadata(), Status: res.GetStatus(), Data: res.GetData(),
	}
	c.ProtoReflect().SetUnknown(res.ProtoReflect().GetUnknown())
	return c
}
