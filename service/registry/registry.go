package registry

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage/resourcepb"
)

// Registry is an immutable set of types. It is safe for concurrent use.
type Registry struct {
	types         map[name]*Type
	partlyVisible map[name]bool // by name without version
	openType      *Type         // the type of an open registry, otherwise nil
}

// New creates a registry. The error lists all errors of all types: a malformed name, a duplicate name, a name that differs from
// another only in case, a missing payload message, a missing scope, a conversion to a type that does not exist.
func New(types ...Type) (*Registry, error) {
	r := &Registry{types: make(map[name]*Type, len(types)), partlyVisible: map[name]bool{}}
	var faults []error
	var converted []name                    // the types with a Conversion
	folded := map[string]*resourcepb.Type{} // by name in lower case, as in paths of the HTTP mapping
	for i, t := range types {
		t.Type = proto.CloneOf(t.Type)
		fault := func(format string, args ...any) {
			faults = append(faults, fmt.Errorf("type %d, %s: %s", i+1, Name(t.Type), fmt.Sprintf(format, args...)))
		}
		for _, wrong := range nameFaults(t.Type) {
			fault("%s", wrong)
		}
		if t.Proto == nil {
			fault("Proto is nil: the payload's message is needed")
		} else if t.Scope == ScopeUndefined {
			t.Scope = DeclaredScope(t.Proto.ProtoReflect().Descriptor())
		}
		if t.Scope < ScopeCluster || t.Scope > ScopeNamespace {
			fault("the scope is %v, and the payload's schema declares no other: expected cluster, partition or namespace", t.Scope)
		}
		lower := strings.ToLower(Name(t.Type))
		if other := folded[lower]; other != nil && equal(other, t.Type) {
			fault("another type has the same name")
		} else if other != nil {
			fault("its name differs from %s in upper and lower case only", Name(other))
		}
		folded[lower] = t.Type
		unversioned := name{group: t.Type.GetGroup(), kind: t.Type.GetKind()}
		if t.Conversion != nil {
			converted = append(converted, nameOf(t.Type))
			for _, wrong := range t.conversionFaults() {
				fault("%s", wrong)
			}
		} else {
			_, again := r.partlyVisible[unversioned]
			r.partlyVisible[unversioned] = again || t.MayRead != nil
		}
		r.types[nameOf(t.Type)] = &t
	}
	faults = append(faults, connect(r.types, converted)...)
	if len(faults) > 0 {
		return nil, fmt.Errorf("registry: %w", errors.Join(faults...))
	}
	for _, t := range r.types {
		*t = *t.withDefaults()
	}
	return r, nil
}

// NewOpen creates a registry that accepts every well-formed type with any payload. common has the hooks and the scope of all types, by default
// ScopeNamespace; its Type and Proto are ignored.
func NewOpen(common Type) *Registry {
	common.Type, common.Proto = nil, nil
	if common.Scope == ScopeUndefined {
		common.Scope = ScopeNamespace
	}
	return &Registry{openType: common.withDefaults()}
}

// Open reports whether the registry was created by NewOpen: types need not be registered, and have no payload message.
func (r *Registry) Open() bool { return r.openType != nil }

// Resolve returns a type of the registry. The result is shared and must not be modified. In an open registry its Type and Proto are nil.
func (r *Registry) Resolve(t *resourcepb.Type) (*Type, bool) {
	if r.openType != nil {
		return r.openType, len(nameFaults(t)) == 0
	}
	found, ok := r.types[nameOf(t)]
	return found, ok
}

// PartlyVisible reports whether a caller may see some resources of a group and kind under a type's name but not others: there are several group
// versions that do not convert to each other, or a MayRead hook. Then an update can move a resource into a watcher's view or out of it.
func (r *Registry) PartlyVisible(t *resourcepb.Type) bool {
	return r.openType != nil || r.partlyVisible[name{group: t.GetGroup(), kind: t.GetKind()}]
}

// Types returns the types of the registry, ordered by name. They are shared and must not be modified. An open registry has none.
func (r *Registry) Types() []*Type {
	types := make([]*Type, 0, len(r.types))
	for _, t := range r.types {
		types = append(types, t)
	}
	slices.SortFunc(types, func(a, b *Type) int { return cmp.Compare(Name(a.Type), Name(b.Type)) })
	return types
}
