package service

import (
	"cmp"
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service/registry"
)

// anyType reports whether a type's name stands for anyType types: with the group version "*" for all of its group and kind, with the kind
// "*" too for all of its group, and with the group "*" too for all there are. Reads, lists and watches take such names.
func anyType(t *resourcepb.Type) bool { return t.GetGroupVersion() == storage.Wildcard }

// matchesType reports whether a name, which may stand for several types, matchesType a type.
func matchesType(name, t *resourcepb.Type) bool {
	if !anyType(name) {
		return name.GetGroupVersion() == t.GetGroupVersion() // the store has looked at the rest
	}
	return (name.GetGroup() == storage.Wildcard || name.GetGroup() == t.GetGroup()) &&
		(name.GetKind() == storage.Wildcard || name.GetKind() == t.GetKind())
}

// resolveAny returns what is particular about all the types that a name stands for, of which some may be registered only. It has no scope:
// units of a tenancy that are not given are those that are not there.
func (s *Server) resolveAny(name *resourcepb.Type, asked *resourcepb.Tenancy) (*registry.Type, error) {
	if !anyType(name) {
		return s.resolve(name)
	}
	if name.GetGroup() == storage.Wildcard && name.GetKind() != storage.Wildcard {
		return nil, invalid("type invalid: the group %q goes with the kind %q only", storage.Wildcard, storage.Wildcard)
	}
	types, err := s.matchingTypes(name)
	if err != nil {
		return nil, err
	}
	return &registry.Type{
		MayList: func(c registry.Caller, name *resourcepb.Type, tenancy *resourcepb.Tenancy) error {
			var denied error
			for _, t := range types {
				typ := t.Type
				if typ == nil {
					typ = name // of an open registry
				}
				err := t.MayList(c, typ, tenancy)
				if !denies(err) {
					return err
				}
				denied = err
			}
			return denied
		},
		MayRead: func(c registry.Caller, id *resourcepb.ID, res *resourcepb.Resource) error {
			t, err := s.resolve(id.GetType())
			if err != nil {
				return registry.ErrDenied // it is of no type that is served
			}
			if t.Type != nil {
				if err := t.MayList(c, t.Type, asked); err != nil {
					return err
				}
			}
			return t.MayRead(c, id, res)
		},
	}, nil
}

// matchingTypes returns the types that a name stands for.
func (s *Server) matchingTypes(name *resourcepb.Type) (types []*registry.Type, err error) {
	if s.types.Open() {
		t, _ := s.types.Resolve(TombstoneType) // which is like any other there
		return []*registry.Type{t}, nil
	}
	for _, t := range s.types.Types() {
		if matchesType(name, t.Type) {
			types = append(types, t)
		}
	}
	if matchesType(name, TombstoneType) {
		types = append(types, tombstones)
	}
	if len(types) == 0 {
		return nil, invalid("resource type %.300s not registered", registry.Name(name))
	}
	return types, nil
}

// readAny is Read of an id whose group version is "*": it returns what is stored, of whichever version that is.
func (s *Server) readAny(ctx context.Context, id *resourcepb.ID) (*resourcepb.ReadResponse, error) {
	types, err := s.matchingTypes(id.GetType())
	if err != nil {
		return nil, err
	}
	scoped := types[0]
	if err := checkScope(scoped, id.GetType(), id.GetTenancy(), false); err != nil {
		return nil, err
	}
	tenancy := fillTenancy(scoped.Scope, id.GetTenancy())
	caller, err := s.caller(ctx, tenancy)
	if err != nil {
		return nil, err
	}
	id = idIn(tenancy, id)
	if err := mayReadOne(types, caller, id, nil); err != nil && !errors.Is(err, registry.ErrNeedResource) {
		return nil, s.authStatus(ctx, err)
	}
	if err := s.checkExists(ctx, tenancy, codes.NotFound); err != nil {
		return nil, err
	}
	res, err := s.readCurrent(ctx, consistency(ctx), id)
	if err != nil {
		return nil, s.toStatus(ctx, "read", err)
	}
	t, unserved := s.resolve(res.GetId().GetType())
	if unserved == nil {
		types = []*registry.Type{t}
	}
	if err := mayReadOne(types, caller, res.GetId(), res); err != nil {
		return nil, s.authStatus(ctx, err)
	}
	if unserved != nil {
		return nil, unserved // of which type it is, too, is for those only who may read it
	}
	return &resourcepb.ReadResponse{Resource: res}, nil
}

// mayReadOne returns nil if a caller may read a resource as one of some types. Without the resource it returns ErrNeedResource if that is
// needed to decide.
func mayReadOne(types []*registry.Type, c registry.Caller, id *resourcepb.ID, res *resourcepb.Resource) error {
	var denied, needed error
	for _, t := range types {
		of := id
		if t.Type != nil {
			of = proto.CloneOf(id)
			of.Type = t.Type
		}
		err := t.MayRead(c, of, nil)
		if errors.Is(err, registry.ErrNeedResource) && res != nil {
			err = t.MayRead(c, of, res)
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
