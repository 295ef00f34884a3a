package service

import (
	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service/registry"
)

// anyType reports whether a type name has the group version "*". Such a name selects all versions of its group and kind; with the kind "*" all
// types of its group; with the group "*", too, all types. Reads, lists and watches accept such names.
func anyType(t *resourcepb.Type) bool { return t.GetGroupVersion() == storage.Wildcard }

// matchesType reports whether a name, which may have wildcards, selects a type. Without wildcards it compares the group version only: the
// store has compared the group and the kind.
func matchesType(name, t *resourcepb.Type) bool {
	if !anyType(name) {
		return name.GetGroupVersion() == t.GetGroupVersion()
	}
	return (name.GetGroup() == storage.Wildcard || name.GetGroup() == t.GetGroup()) &&
		(name.GetKind() == storage.Wildcard || name.GetKind() == t.GetKind())
}

// resolveAny is resolve for a name that may have wildcards. The result for wildcards allows listing if any selected type does, and has no
// scope: missing units of a tenancy are not filled in.
func (s *Server) resolveAny(name *resourcepb.Type, requested *resourcepb.Tenancy) (*registry.Type, error) {
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
				return registry.ErrDenied // the type is not registered
			}
			if t.Type != nil {
				if err := t.MayList(c, t.Type, requested); err != nil {
					return err
				}
			}
			return t.MayRead(c, id, res)
		},
	}, nil
}

// matchingTypes returns the types that a name selects.
func (s *Server) matchingTypes(name *resourcepb.Type) (types []*registry.Type, err error) {
	if s.types.Load().Open() {
		t, _ := s.types.Load().Resolve(TombstoneType) // any type: all have the same hooks
		return []*registry.Type{t}, nil
	}
	for _, t := range s.types.Load().Types() {
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
