package service

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service/registry"
)

// MutateAndValidate returns a resource as it would be written, without writing it.
func (s *Server) MutateAndValidate(ctx context.Context, req *resourcepb.MutateAndValidateRequest) (*resourcepb.MutateAndValidateResponse, error) {
	in, err := s.prepare(ctx, req.GetResource())
	if err == nil {
		err = in.hookErr
	}
	if err == nil {
		err = s.checkUnmarked(ctx, in.requested.GetId().GetTenancy())
	}
	if err != nil {
		return nil, err
	}
	return &resourcepb.MutateAndValidateResponse{Resource: in.mutated}, nil
}

// input is the resource of a request after the checks that need no look at what is stored.
type input struct {
	t      *registry.Type
	caller registry.Caller
	// requested is a copy of the resource with its tenancy filled in, but not mutated.
	requested *resourcepb.Resource
	// mutated is the resource after Mutate, another message than asked only where the type has that function.
	mutated *resourcepb.Resource
	// hookErr is what the hooks found wrong with the resource, as the caller is told of it. Changes to a resource that is marked for
	// deletion are allowed nevertheless: else what the hooks refuse today could not be deleted.
	hookErr error
	// create says that nothing may be stored yet.
	create bool
}

// prepare checks a resource that is to be written, by shape, type, scope, hooks, authorization and the existence of its tenancy.
func (s *Server) prepare(ctx context.Context, res *resourcepb.Resource) (*input, error) {
	if res == nil {
		return nil, invalid("resource is required")
	}
	if err := checkID("resource.id", res.GetId()); err != nil {
		return nil, err
	}
	if res.GetOwner() != nil {
		if err := checkID("resource.owner", res.GetOwner()); err != nil {
			return nil, err
		}
		if isTombstone(res.GetOwner().GetType()) {
			return nil, invalid("resource.owner invalid: a tombstone owns nothing")
		}
	}
	if isTombstone(res.GetId().GetType()) {
		return nil, invalid("resource type %s is written by the service only", registry.Name(res.GetId().GetType()))
	}
	t, err := s.resolve(res.GetId().GetType())
	if err != nil {
		return nil, err
	}
	if err := checkScope(t, res.GetId().GetType(), res.GetId().GetTenancy(), false); err != nil {
		return nil, err
	}
	if err := checkPayload(t, res); err != nil {
		return nil, err
	}
	tenancy := fillTenancy(t.Scope, res.GetId().GetTenancy())
	caller, err := s.caller(ctx, tenancy)
	if err != nil {
		return nil, err
	}

	in := &input{t: t, caller: caller, requested: proto.CloneOf(res)}
	in.requested.Id.Tenancy = tenancy
	in.mutated = in.requested
	if t.Mutate != nil {
		in.mutated = proto.CloneOf(in.requested)
		if err := t.Mutate(in.mutated); err != nil {
			in.hookErr = status.Errorf(codes.Internal, "mutate: %v", err)
		} else if !proto.Equal(in.mutated.GetId(), in.requested.GetId()) || !proto.Equal(in.mutated.GetOwner(), in.requested.GetOwner()) ||
			in.mutated.GetVersion() != in.requested.GetVersion() || !equalStatus(in.mutated, in.requested) {
			in.hookErr = status.Error(codes.Internal, "mutate: the type's Mutate hook changed the id, the owner, the version or the status")
		}
	}
	if t.Validate != nil && in.hookErr == nil {
		if err := t.Validate(in.mutated); err != nil {
			in.hookErr = invalid("%v", err)
		}
	}
	judged := in.mutated
	if in.hookErr != nil {
		judged = in.requested
	}
	if err := t.MayWrite(caller, judged); err != nil {
		if in.hookErr != nil {
			return nil, in.hookErr // the hook may rely on what Validate has seen
		}
		return nil, s.authStatus(ctx, err)
	}
	return in, s.checkExists(ctx, tenancy, codes.InvalidArgument)
}

// checkPayload refuses data of another message than the type's, and bytes that are none. There may be no data.
func checkPayload(t *registry.Type, res *resourcepb.Resource) error {
	if t.Proto == nil || res.GetData() == nil {
		return nil
	}
	want := t.Proto.ProtoReflect().Descriptor().FullName()
	if got := res.GetData().MessageName(); got != want {
		return invalid("resource.data is of wrong type (expected=%q, got=%.300q)", want, got)
	}
	if err := proto.Unmarshal(res.GetData().GetValue(), t.Proto.ProtoReflect().New().Interface()); err != nil {
		return invalid("resource.data invalid: it does not decode as %s: %v", want, err)
	}
	return nil
}

// checkUnmarked refuses writes to a partition or a namespace that is marked for deletion.
func (s *Server) checkUnmarked(ctx context.Context, tenancy *resourcepb.Tenancy) error {
	marked, err := s.opts.Tenancies.DeletionPending(ctx, tenancy)
	if err != nil {
		return s.hookStatus(ctx, "look up the tenancy", err)
	}
	if marked {
		return invalid("tenancy marked for deletion: partition %q, namespace %q", tenancy.GetPartition(), tenancy.GetNamespace())
	}
	return nil
}
