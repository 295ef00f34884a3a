package service

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service/registry"
)

// view is the set of resources that a list or a watch shows to its caller: the resources of a type and a tenancy that the caller may read.
type view struct {
	server  *Server
	name    *resourcepb.Type // of the request, with wildcards
	t       *registry.Type
	tenancy *resourcepb.Tenancy

	callers   map[tenancyKey]registry.Caller // the caller as authenticated for each tenancy; nil if it was rejected
	last      lastCaller                     // the result of the last look-up in callers, usually the next one too
	recheckAt time.Time                      // when a stream checks again that the caller may list
}

// tenancyKey is a tenancy as a map key.
type tenancyKey struct{ partition, namespace string }

func keyOf(t *resourcepb.Tenancy) tenancyKey { return tenancyKey{t.GetPartition(), t.GetNamespace()} }

// openView checks the type, the tenancy and the name prefix of a request, fills in the tenancy and checks that the caller may list them.
func (s *Server) openView(ctx context.Context, name *resourcepb.Type, tenancy *resourcepb.Tenancy, prefix string) (*view, error) {
	if name == nil {
		return nil, invalid("type is required")
	}
	if tenancy == nil {
		return nil, invalid("tenancy is required")
	}
	if err := checkTenancy("tenancy", tenancy, true); err != nil {
		return nil, err
	}
	if err := checkPrefix(prefix); err != nil {
		return nil, err
	}
	t, err := s.resolveAny(name, tenancy)
	if err != nil {
		return nil, err
	}
	if err := checkScope(t, name, tenancy, true); err != nil {
		return nil, err
	}
	v := &view{server: s, name: name, t: t, tenancy: fillTenancy(t.Scope, tenancy)}
	return v, v.authenticate(ctx)
}

// authenticate authenticates the caller and checks that it may list.
func (v *view) authenticate(ctx context.Context) error {
	c, err := v.server.caller(ctx, v.tenancy)
	if err != nil {
		return err
	}
	if err := v.server.authStatus(ctx, v.t.MayList(c, v.name, v.tenancy)); err != nil {
		return err
	}
	v.callers, v.last = map[tenancyKey]registry.Caller{keyOf(v.tenancy): c}, lastCaller{}
	v.recheckAt = time.Now().Add(v.server.opts.Recheck)
	return nil
}

// lastCaller is the caller as authenticated for one tenancy.
type lastCaller struct {
	tenancy tenancyKey
	caller  registry.Caller
	isKnown bool
}

// caller returns the caller as authenticated for a tenancy. It returns nil if authentication fails: then nothing of the tenancy is visible.
func (v *view) caller(ctx context.Context, tenancy *resourcepb.Tenancy) (registry.Caller, error) {
	key := keyOf(tenancy)
	if v.last.isKnown && v.last.tenancy == key {
		return v.last.caller, nil
	}
	c, err := v.findCaller(ctx, tenancy, key)
	if err == nil {
		v.last = lastCaller{key, c, true}
	}
	return c, err
}

// findCaller is caller without the last result.
func (v *view) findCaller(ctx context.Context, tenancy *resourcepb.Tenancy, key tenancyKey) (registry.Caller, error) {
	if c, ok := v.callers[key]; ok {
		return c, nil
	}
	c, err := v.server.caller(ctx, tenancy)
	if err != nil {
		if status.Code(err) != codes.PermissionDenied && status.Code(err) != codes.Unauthenticated {
			return nil, err
		}
		c = nil
	}
	v.callers[key] = c
	return c, nil
}

// selects reports whether the view has the resources that are stored with a type: the type of the view, or a type that converts to it. The store has compared
// the group and the kind, unless the name of the view has wildcards.
func (v *view) selects(stored *resourcepb.Type) bool {
	return matchesType(v.name, stored) || !anyType(v.name) && v.t.Converts(stored)
}

// mayRead reports whether the caller may read a resource of type t.
func (v *view) mayRead(ctx context.Context, t *registry.Type, res *resourcepb.Resource) (bool, error) {
	c, err := v.caller(ctx, res.GetId().GetTenancy())
	if c == nil {
		return false, err
	}
	err = t.MayRead(c, res.GetId(), nil)
	if errors.Is(err, registry.ErrNeedResource) {
		err = t.MayRead(c, res.GetId(), res)
	}
	if denies(err) {
		return false, nil
	}
	return err == nil, v.server.authStatus(ctx, err)
}

// mayName reports whether the caller may know that a resource with this id exists, whatever its content.
func (v *view) mayName(ctx context.Context, id *resourcepb.ID) (bool, error) {
	c, err := v.caller(ctx, id.GetTenancy())
	return c != nil && v.t.MayRead(c, id, nil) == nil, err
}

// viewOrID returns a past state of a resource as type t, or the id alone if it cannot be converted: an error would end the stream,
// and each stream that resumes there, because of a state that is past.
func (v *view) viewOrID(ctx context.Context, t *registry.Type, res *resourcepb.Resource) *resourcepb.Resource {
	shown, err := t.FromStored(res)
	if err != nil {
		v.server.opts.Logger.WarnContext(ctx, "the id alone of a past state is sent", "error", err)
		id := proto.CloneOf(res.GetId())
		id.Type = proto.CloneOf(t.Type)
		return &resourcepb.Resource{Id: id}
	}
	return shown
}
