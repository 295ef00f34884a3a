package service

import (
	"strings"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service/registry"
)

// maxName is the largest length of a name and of a unit of a tenancy, which is that of a DNS label.
const maxName = 63

// isName reports whether s is a name: lower-case letters, digits and '-' inside.
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

// checkName refuses what is no name. field is how the error calls it.
func checkName(field, s string) error {
	if isName(s) {
		return nil
	}
	return invalid("%s invalid: expected 1 to %d lower-case letters, digits and '-', with a letter or a digit at both ends, got %.80q",
		field, maxName, s)
}

// checkID checks the shape of an id. Its uid may be missing.
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

// checkTenancy checks the units of a tenancy that are there.
func checkTenancy(field string, t *resourcepb.Tenancy, wildcards bool) error {
	for _, unit := range []struct{ what, name string }{{"partition", t.GetPartition()}, {"namespace", t.GetNamespace()}} {
		if unit.name == "" || isName(unit.name) || wildcards && unit.name == storage.Wildcard {
			continue
		}
		return checkName(field+"."+unit.what, unit.name)
	}
	return nil
}

// checkPrefix refuses a name prefix that no name can begin with.
func checkPrefix(prefix string) error {
	if prefix != strings.ToLower(prefix) {
		return invalid("name_prefix invalid: names are in lower case, got %.80q", prefix)
	}
	return nil
}

// resolve returns what is particular about a type, after the shape of the request was checked.
func (s *Server) resolve(t *resourcepb.Type) (*registry.Type, error) {
	found, ok := s.types.Resolve(t)
	if isTombstone(t) {
		found, ok = tombstones, t.GetGroupVersion() == TombstoneType.GetGroupVersion()
	}
	if !ok {
		return nil, invalid("resource type %.300s not registered", registry.Name(t))
	}
	return found, nil
}

// checkScope refuses units of a tenancy that resources of a type do not live in. A wildcard may stand for a unit that is not there.
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

// defaultUnit is the partition, and the namespace, of a request that names none.
const defaultUnit = "default"

// fillTenancy returns a tenancy with the units of the scope filled in, and without the others. The request's own is not changed.
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
	case registry.ScopeUndefined: // tombstones, which live where the deleted resource lived
	}
	return &resourcepb.Tenancy{Partition: t.GetPartition(), Namespace: t.GetNamespace()}
}

// idIn returns an id with another tenancy. It shares the type with id.
func idIn(tenancy *resourcepb.Tenancy, id *resourcepb.ID) *resourcepb.ID {
	return &resourcepb.ID{Uid: id.GetUid(), Name: id.GetName(), Type: id.GetType(), Tenancy: tenancy}
}
