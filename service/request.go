package service

import (
	"context"
	"strings"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service/registry"
)

// admission is a request for one resource that passed the checks of its type and tenancy.
type admission struct {
	t      *registry.Type
	id     *resourcepb.ID // with its tenancy filled in; it shares the type with the request
	caller registry.Caller
}

// admit resolves the type of an id, checks its scope, fills in the tenancy and authenticates the caller. The shape of the id has been checked.
func (s *Server) admit(ctx context.Context, id *resourcepb.ID) (*admission, error) {
	t, err := s.resolve(id.GetType())
	if err != nil {
		return nil, err
	}
	return s.admitAs(ctx, t, id)
}

// admitAs is admit with the type already resolved.
func (s *Server) admitAs(ctx context.Context, t *registry.Type, id *resourcepb.ID) (*admission, error) {
	if err := checkScope(t, id.GetType(), id.GetTenancy(), false); err != nil {
		return nil, err
	}
	id = idIn(fillTenancy(t.Scope, id.GetTenancy()), id)
	caller, err := s.caller(ctx, id.GetTenancy())
	if err != nil {
		return nil, err
	}
	m := mutationOf(ctx)
	m.ID, m.Caller = id, caller
	return &admission{t: t, id: id, caller: caller}, nil
}

// resolve returns the registered type, or tombstones for the type of tombstones.
func (s *Server) resolve(t *resourcepb.Type) (*registry.Type, error) {
	found, ok := s.types.Load().Resolve(t)
	if isTombstone(t) {
		found, ok = tombstones, t.GetGroupVersion() == TombstoneType.GetGroupVersion()
	}
	switch {
	case !ok && isTombstone(t):
		return nil, refusal("resource type %.300s not registered", registry.Name(t))
	case !ok:
		return nil, invalid("resource type %.300s not registered", registry.Name(t))
	}
	return found, nil
}

// maxName is the maximum length of a name and of a unit of a tenancy, as of a DNS label.
const maxName = 63

// isName reports whether s is a valid name: lower-case letters, digits, and '-' except at the ends.
func isName(s string) bool {
	if s == "" || len(s) > maxName || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

// checkName rejects an invalid name. field is the name of the field in the error.
func checkName(field, s string) error {
	if isName(s) {
		return nil
	}
	return invalid("%s invalid: expected 1 to %d lower-case letters, digits and '-', with a letter or a digit at both ends, got %.80q",
		field, maxName, s)
}

// checkID checks the shape of an id. The uid is optional.
func checkID(field string, id *resourcepb.ID) error {
	if id == nil {
		return invalid("%s is required", field)
	}
	if id.GetType() == nil {
		return invalid("%s.type is required", field)
	}
	if err := checkName(field+".name", id.GetName()); err != nil {
		return err
	}
	return checkTenancy(field+".tenancy", id.GetTenancy(), false)
}

// checkTenancy checks the units of a tenancy that are set.
func checkTenancy(field string, t *resourcepb.Tenancy, wildcards bool) error {
	for _, unit := range []struct{ field, name string }{{"partition", t.GetPartition()}, {"namespace", t.GetNamespace()}} {
		if unit.name == "" || isName(unit.name) || wildcards && unit.name == storage.Wildcard {
			continue
		}
		return checkName(field+"."+unit.field, unit.name)
	}
	return nil
}

// checkPrefix rejects a name prefix in upper case, which no name can have.
func checkPrefix(prefix string) error {
	if strings.ContainsFunc(prefix, func(r rune) bool { return 'A' <= r && r <= 'Z' }) {
		return invalid("name_prefix invalid: names are in lower case, got %.80q", prefix)
	}
	return nil
}

// checkScope rejects a tenancy with units outside the scope of a type. With wildcards, "*" is accepted for such a unit.
func checkScope(t *registry.Type, name *resourcepb.Type, tenancy *resourcepb.Tenancy, wildcards bool) error {
	partition, namespace := tenancy.GetPartition(), tenancy.GetNamespace()
	if wildcards && partition == storage.Wildcard {
		partition = ""
	}
	if wildcards && namespace == storage.Wildcard {
		namespace = ""
	}
	switch {
	case t.Scope == registry.ScopeCluster && partition != "":
		return invalid("cluster scoped resource %s cannot have a partition: %s", registry.Name(name), partition)
	case t.Scope == registry.ScopeCluster && namespace != "":
		return invalid("cluster scoped resource %s cannot have a namespace: %s", registry.Name(name), namespace)
	case t.Scope == registry.ScopePartition && namespace != "":
		return invalid("partition scoped resource %s cannot have a namespace. got: %s", registry.Name(name), namespace)
	}
	return nil
}

// defaultUnit is the default partition and namespace of a request.
const defaultUnit = "default"

// fillTenancy returns a copy of a tenancy with the units of the scope set and the other ones cleared.
func fillTenancy(scope registry.Scope, t *resourcepb.Tenancy) *resourcepb.Tenancy {
	or := func(unit string) string {
		if unit == "" {
			return defaultUnit
		}
		return unit
	}
	switch scope {
	case registry.ScopeNamespace:
		return &resourcepb.Tenancy{Partition: or(t.GetPartition()), Namespace: or(t.GetNamespace())}
	case registry.ScopePartition:
		return &resourcepb.Tenancy{Partition: or(t.GetPartition())}
	case registry.ScopeCluster:
		return &resourcepb.Tenancy{}
	case registry.ScopeUndefined: // a tombstone has the tenancy of the deleted resource
	}
	return &resourcepb.Tenancy{Partition: t.GetPartition(), Namespace: t.GetNamespace()}
}
