package service

import (
	"context"
	"errors"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service/registry"
)

// answer returns the answer to a write: the stored resource if the caller may read it. Permission to write does not include that: otherwise the
// answer has the content of the request, with the id, the version and the generation of the stored resource.
func (s *Server) answer(ctx context.Context, in *admission, stored, request *resourcepb.Resource) *resourcepb.Resource {
	shown, convertErr := in.t.FromStored(stored)
	err := in.mayRead(stored)
	if err == nil {
		err = convertErr // the write of a payload that cannot be converted is refused, so this is the conversion of a status or a deletion
	}
	if err == nil {
		return shown
	}
	if !denies(err) {
		s.opts.Logger.ErrorContext(ctx, "the resource service failed", "doing", "answer a write", "error", err)
	}
	visible := copyOf(request)
	visible.Id, visible.Version, visible.Generation = proto.CloneOf(stored.GetId()), stored.GetVersion(), stored.GetGeneration()
	if in.t.Converts(stored.GetId().GetType()) {
		visible.Id.Type = in.id.GetType()
	}
	return visible
}

// mayRead returns the error of the hook that authorizes the caller to read a resource.
func (in *admission) mayRead(res *resourcepb.Resource) error {
	err := in.t.MayRead(in.caller, res.GetId(), nil)
	if errors.Is(err, registry.ErrNeedResource) {
		err = in.t.MayRead(in.caller, res.GetId(), res)
	}
	return err
}
