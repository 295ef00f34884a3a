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
// If the resource has a version, that version must be stored; otherwise Write fails with Aborted. Without a version Write replaces whatever is
// stored, and fails with Aborted only after repeated conflicts with other writes. If the resource has a uid, Write updates the resource with that
// uid and creates nothing; otherwise it fails with FailedPrecondition. With create, Write fails with Aborted if something is stored.
//
// A write that removes the last finalizer from a resource with a deletion mark deletes the resource. The response is the deleted resource.
func (s *Server) Write(ctx context.Context, req *resourcepb.WriteRequest) (_ *resourcepb.WriteResponse, err error) {
	ctx, audited := s.audit(ctx, "Write", req.GetResource().GetId())
	defer audited(&err)
	if req.GetCreate() && req.GetResource().GetVersion() != "" {
		return nil, invalid("resource.version invalid: a resource to create has none")
	}
	if req.GetCreate() && req.GetResource().GetId().GetUid() != "" {
		return nil, invalid("resource.id.uid invalid: the service assigns the uid of a resource to create")
	}
	in, err := s.prepare(ctx, req.GetResource())
	if err != nil {
		return nil, err
	}
	in.create = req.GetCreate()
	var stored *resourcepb.Resource
	err = retryConflicts(ctx, in.create || in.original.GetVersion() != "", func(consistency storage.ReadConsistency) (err error) {
		stored, err = s.write(ctx, consistency, in)
		return err
	})
	if err != nil {
		return nil, s.toStatus(ctx, "write", err)
	}
	return &resourcepb.WriteResponse{Resource: s.answer(ctx, in.admission, stored, in.original)}, nil
}

// write reads the stored resource, then creates or updates it.
func (s *Server) write(ctx context.Context, consistency storage.ReadConsistency, in *input) (*resourcepb.Resource, error) {
	key := idIn(in.original.GetId().GetTenancy(), in.original.GetId())
	key.Uid = ""
	current, err := s.readCurrent(ctx, consistency, key)
	switch {
	case errors.Is(err, storage.ErrNotFound):
		if err := s.convert(ctx, in, nil); err != nil {
			return nil, err
		}
		return s.create(ctx, in)
	case err != nil:
		return nil, err
	}
	mutationOf(ctx).Before = current
	if err := s.authStatus(ctx, in.t.MayWrite(in.caller, current)); err != nil {
		return nil, s.deny(ctx, in, err) // the caller must be allowed to write both the stored and the new resource
	}
	switch {
	case in.create:
		return nil, decisionError{storage.ErrCASFailure}
	case in.original.GetId().GetUid() != "" && in.original.GetId().GetUid() != current.GetId().GetUid():
		return nil, decisionError{storage.ErrWrongUid}
	case in.original.GetVersion() != "" && in.original.GetVersion() != current.GetVersion():
		return nil, decisionError{storage.ErrCASFailure}
	}
	lifted, err := in.t.Lift(current)
	if err != nil {
		return nil, decisionError{s.hideCause(ctx, in, current, err)}
	}
	current = lifted
	if err := s.convert(ctx, in, current); err != nil {
		return nil, err
	}
	return s.update(ctx, in, current)
}

// create stores a resource where nothing is stored.
func (s *Server) create(ctx context.Context, in *input) (*resourcepb.Resource, error) {
	switch {
	case in.hookErr != nil:
		return nil, decisionError{in.hookErr} // an eventual read may have missed a resource with a deletion mark
	case in.requested.GetId().GetUid() != "":
		return nil, decisionError{storage.ErrWrongUid} // the requested incarnation does not exist
	case in.requested.GetVersion() != "":
		return nil, decisionError{storage.ErrCASFailure}
	case len(in.requested.GetStatus()) > 0:
		return nil, decisionError{errStatusInWrite}
	case hasDeletionMark(in.mutated):
		return nil, decisionError{invalid("metadata.%s cannot be set on a resource that does not exist", deletionTimestampKey)}
	}
	if err := s.checkUnmarked(ctx, in.requested.GetId().GetTenancy()); err != nil {
		return nil, err
	}
	res := copyOf(in.mutated)
	res.Id = idIn(res.GetId().GetTenancy(), res.GetId())
	res.Id.Uid = ulid.Make().String()
	res.Generation = ulid.Make().String()
	res.Author = s.author(in.caller)
	owner := res.GetOwner()
	switch {
	case owner == nil:
	case owner.GetUid() == "":
		uid, err := s.ownerUid(ctx, in, owner)
		if err != nil {
			return nil, err
		}
		res.Owner = idIn(owner.GetTenancy(), owner)
		res.Owner.Uid = uid
	default:
		absent, err := s.isAbsent(ctx, owner)
		if err != nil {
			return nil, err
		}
		if absent {
			return s.storeOrphan(ctx, res)
		}
	}
	return s.store(ctx, res)
}

// ownerUid returns the uid of the resource stored under the id of an owner. The caller must be allowed to read that resource: otherwise it would
// learn its existence and its uid.
func (s *Server) ownerUid(ctx context.Context, in *input, owner *resourcepb.ID) (string, error) {
	none := refusal("resource.owner does not exist")
	t, err := s.resolve(owner.GetType())
	if err != nil || owner.GetTenancy() == nil { // the tenancy of an owner has no defaults
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

// errStatusInWrite rejects a changed status in a Write.
var errStatusInWrite = refusal("resource.status can only be set using the WriteStatus endpoint")

// update replaces a stored resource. It keeps the stored fields that only the service may change.
func (s *Server) update(ctx context.Context, in *input, current *resourcepb.Resource) (*resourcepb.Resource, error) {
	proposed := in.mutated
	if hasDeletionMark(current) {
		proposed = in.requested // the hooks do not apply to a resource with a deletion mark
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
	owner, err := s.unchangedOwner(res.GetOwner(), current.GetOwner())
	if err != nil {
		return nil, err
	}
	res.Owner = owner
	if len(res.GetStatus()) == 0 {
		res.Status = current.GetStatus()
	} else if !equalStatus(res, current) {
		return nil, decisionError{errStatusInWrite}
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
	res.Author = s.author(in.caller)
	if deleting == stepDelete {
		return res, s.deleteLeavingTombstone(ctx, current)
	}
	return s.store(ctx, res)
}

// unchangedOwner returns the stored owner if the requested owner is the same. The uid of the requested owner is optional.
func (s *Server) unchangedOwner(requested, stored *resourcepb.ID) (*resourcepb.ID, error) {
	if requested != nil && stored != nil && requested.GetUid() == "" {
		requested = idIn(requested.GetTenancy(), requested)
		requested.Uid = stored.GetUid()
	}
	if !proto.Equal(requested, s.storedOwner(stored)) {
		return nil, decisionError{invalid("owner cannot be changed")}
	}
	return stored, nil
}

// carryMarks returns the metadata of a write without a version, with the missing marks of the stored resource added.
func carryMarks(requested, stored map[string]string) map[string]string {
	for _, mark := range []string{deletionTimestampKey, finalizersKey} {
		value, ok := stored[mark]
		if _, given := requested[mark]; ok && !given {
			requested = maps.Clone(requested)
			if requested == nil {
				requested = map[string]string{}
			}
			requested[mark] = value
		}
	}
	return requested
}
