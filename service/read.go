package service

import (
	"cmp"
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service/registry"
)

// Read returns one resource. With the metadata "x-consul-consistency-mode: consistent" the read is linearizable. The group version "*"
// selects the stored version.
func (s *Server) Read(ctx context.Context, req *resourcepb.ReadRequest) (*resourcepb.ReadResponse, error) {
	irregular := checkID("id", req.GetId())
	if irregular != nil && req.GetId().GetType() == nil {
		return nil, irregular
	}
	read := s.readTyped
	if anyType(req.GetId().GetType()) {
		read = s.readAny
	}
	res, err := read(ctx, req.GetId())
	if err != nil {
		return nil, unlessStored(irregular, err)
	}
	return &resourcepb.ReadResponse{Resource: res}, nil
}

// unlessStored returns the error of a request for an id. irregular is the error of checkID: another program may have stored a resource under an id
// that the service does not write, and then it can be read and deleted. Otherwise the client gets the error of the id.
func unlessStored(irregular, err error) error {
	if code := status.Code(err); irregular != nil && (code == codes.NotFound || code == codes.InvalidArgument) {
		return irregular
	}
	return err
}

// readTyped is Read for an id of one type.
func (s *Server) readTyped(ctx context.Context, id *resourcepb.ID) (*resourcepb.Resource, error) {
	in, err := s.admit(ctx, id)
	if err != nil {
		return nil, err
	}
	needed := in.t.MayRead(in.caller, in.id, nil)
	if needed != nil && !errors.Is(needed, registry.ErrNeedResource) {
		return nil, s.authStatus(ctx, needed)
	}
	if err := s.checkExists(ctx, in.id.GetTenancy(), codes.NotFound); err != nil {
		return nil, err
	}
	res, err := s.readAs(ctx, consistency(ctx), in)
	stored := res
	if mismatch := (storage.GroupVersionMismatchError{}); errors.As(err, &mismatch) {
		stored = mismatch.Stored // the stored group version, too, is disclosed only to callers that may read the resource
	}
	if needed != nil && stored != nil {
		if err := s.authStatus(ctx, in.t.MayRead(in.caller, in.id, stored)); err != nil {
			return nil, err
		}
	}
	if err == nil {
		res, err = in.t.FromStored(res)
	}
	if err != nil {
		return nil, s.toStatus(ctx, "read", err)
	}
	return res, nil
}

// readAs returns the resource stored under the id of a request, in the stored group version: the requested version, or a version that converts to it.
func (s *Server) readAs(ctx context.Context, consistency storage.ReadConsistency, in *admission) (*resourcepb.Resource, error) {
	res, err := s.backend.Read(ctx, consistency, in.id)
	if mismatch := (storage.GroupVersionMismatchError{}); errors.As(err, &mismatch) && in.t.Converts(mismatch.Stored.GetId().GetType()) {
		return mismatch.Stored, nil
	}
	return res, err
}

// readCurrent returns the resource stored under an id, whatever its group version.
func (s *Server) readCurrent(ctx context.Context, consistency storage.ReadConsistency, id *resourcepb.ID) (*resourcepb.Resource, error) {
	res, err := s.backend.Read(ctx, consistency, id)
	if mismatch := (storage.GroupVersionMismatchError{}); errors.As(err, &mismatch) {
		return mismatch.Stored, nil
	}
	return res, err
}

// readAny is Read for an id with the group version "*". It returns the stored resource, whatever its group version.
func (s *Server) readAny(ctx context.Context, id *resourcepb.ID) (*resourcepb.Resource, error) {
	types, err := s.matchingTypes(id.GetType())
	if err != nil {
		return nil, err
	}
	in, err := s.admitAs(ctx, types[0], id)
	if err != nil {
		return nil, err
	}
	if err := mayReadAsAny(types, in.caller, in.id, nil); err != nil && !errors.Is(err, registry.ErrNeedResource) {
		return nil, s.authStatus(ctx, err)
	}
	if err := s.checkExists(ctx, in.id.GetTenancy(), codes.NotFound); err != nil {
		return nil, err
	}
	res, err := s.readCurrent(ctx, consistency(ctx), in.id)
	if err != nil {
		return nil, s.toStatus(ctx, "read", err)
	}
	t, unregistered := s.resolve(res.GetId().GetType())
	if unregistered == nil {
		types = []*registry.Type{t}
	}
	if err := mayReadAsAny(types, in.caller, res.GetId(), res); err != nil {
		return nil, s.authStatus(ctx, err)
	}
	if unregistered != nil {
		return nil, unregistered // the stored type, too, is disclosed only to callers that may read the resource
	}
	return res, nil
}

// mayReadAsAny returns nil if a caller may read a resource as one of the types. If res is nil, it returns ErrNeedResource if a hook needs the
// resource to decide.
func mayReadAsAny(types []*registry.Type, c registry.Caller, id *resourcepb.ID, res *resourcepb.Resource) error {
	var denied, needed error
	for _, t := range types {
		typed := id
		if t.Type != nil {
			typed = proto.CloneOf(id)
			typed.Type = t.Type
		}
		err := t.MayRead(c, typed, nil)
		if errors.Is(err, registry.ErrNeedResource) && res != nil {
			err = t.MayRead(c, typed, res)
		}
		switch {
		case errors.Is(err, registry.ErrNeedResource):
			needed = err
		case denies(err):
			denied = err
		default:
			return err
		}
	}
	return cmp.Or(needed, denied)
}
