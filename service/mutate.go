package service

import (
	"cmp"
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage/internal/check"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service/registry"
)

// input is the resource of a request after the checks that do not depend on the stored resource.
type input struct {
	*admission
	// original is a copy of the requested resource with its tenancy filled in.
	original *resourcepb.Resource
	// requested is the requested resource in the stored group version, before Mutate. With a conversion it depends on the stored resource, so it and the
	// result of the hooks are set after that was read.
	requested *resourcepb.Resource
	// mutated is the resource after Mutate. It is the same message as requested if the type has no such hook.
	mutated *resourcepb.Resource
	// hookErr is the status error of the Mutate and Validate hooks. It does not block changes to a resource that is marked for deletion:
	// otherwise a resource that the hooks reject today could not be deleted.
	hookErr error
	// create requires that nothing is stored yet.
	create bool
}

// isConverted reports whether the requested resource has another group version than the stored one.
func (in *input) isConverted() bool {
	return in.t.Conversion != nil
}

// prepare checks the resource of a write: its shape, type, scope and payload. It also calls complete, unless the resource must be converted first.
func (s *Server) prepare(ctx context.Context, res *resourcepb.Resource) (*input, error) {
	if res == nil {
		return nil, invalid("resource is required")
	}
	if err := checkID("resource.id", res.GetId()); err != nil {
		return nil, err
	}
	if fault := check.TTL(res.GetTtl()); fault != "" {
		return nil, invalid("resource.ttl invalid: %s", fault)
	}
	if res.GetOwner() != nil {
		if err := checkID("resource.owner", res.GetOwner()); err != nil {
			return nil, refusal("%s", status.Convert(err).Message())
		}
		if isTombstone(res.GetOwner().GetType()) {
			return nil, refusal("resource.owner invalid: a tombstone owns nothing")
		}
	}
	if isTombstone(res.GetId().GetType()) {
		return nil, refusal("resource type %s is written by the service only", registry.Name(res.GetId().GetType()))
	}
	t, err := s.resolve(res.GetId().GetType())
	if err != nil {
		return nil, err
	}
	// Clients of the compatible API expect the error of the scope before the error of the payload, and both before authentication.
	if err := cmp.Or(checkScope(t, res.GetId().GetType(), res.GetId().GetTenancy(), false), checkPayload(t, res)); err != nil {
		return nil, err
	}
	a, err := s.admitAs(ctx, t, res.GetId())
	if err != nil {
		return nil, err
	}

	in := &input{admission: a, original: proto.CloneOf(res)}
	in.original.Id.Tenancy = a.id.GetTenancy()
	in.original.Owner = s.storedOwner(in.original.GetOwner())
	if in.isConverted() {
		return in, nil
	}
	in.requested = in.original
	return in, s.complete(ctx, in)
}

// complete runs the hooks on the requested resource and checks the authorization and that the tenancy exists.
func (s *Server) complete(ctx context.Context, in *input) error {
	t := in.t
	in.mutated, in.hookErr = in.requested, nil
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
			in.hookErr = refusal("%v", err)
		}
	}
	proposed := in.mutated
	if in.hookErr != nil {
		proposed = in.requested
	}
	if err := t.MayWrite(in.caller, proposed); err != nil {
		if in.hookErr != nil {
			return in.hookErr // MayWrite may rely on a validated resource
		}
		return s.authStatus(ctx, err)
	}
	return s.checkExists(ctx, in.id.GetTenancy(), codes.InvalidArgument)
}

// storedOwner returns the id of an owner in the stored group version of its kind, so that clients of all versions refer to the same owner.
func (s *Server) storedOwner(owner *resourcepb.ID) *resourcepb.ID {
	t, ok := s.types.Load().Resolve(owner.GetType())
	if owner == nil || !ok || !t.Converts(owner.GetType()) {
		return owner
	}
	owner = idIn(owner.GetTenancy(), owner)
	owner.Type = t.Stored()
	return owner
}

// checkPayload rejects a payload of another message than the type's, and one that does not decode. The payload is optional.
func checkPayload(t *registry.Type, res *resourcepb.Resource) error {
	if t.Proto == nil || res.GetData() == nil {
		return nil
	}
	want := t.Proto.ProtoReflect().Descriptor().FullName()
	if got := res.GetData().MessageName(); got != want {
		return refusal("resource.data is of wrong type (expected=%q, got=%.300q)", want, got)
	}
	if err := proto.Unmarshal(res.GetData().GetValue(), t.Proto.ProtoReflect().New().Interface()); err != nil {
		return refusal("resource.data invalid: it does not decode as %s: %v", want, err)
	}
	return nil
}

// checkUnmarked rejects a write to a partition or a namespace that is marked for deletion.
func (s *Server) checkUnmarked(ctx context.Context, tenancy *resourcepb.Tenancy) error {
	pending, err := s.opts.Tenancies.DeletionPending(ctx, tenancy)
	if err != nil {
		return s.hookStatus(ctx, "look up the tenancy", err)
	}
	if pending {
		return invalid("tenancy marked for deletion: partition %q, namespace %q", tenancy.GetPartition(), tenancy.GetNamespace())
	}
	return nil
}
