package registry

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage/resourcepb"
)

// Registry is a set of types. It never changes, and all its methods may be called from any number of goroutines.
type Registry struct {
	types         map[name]*Type
	partlyVisible map[name]bool // by names without versions
	openType      *Type         // what is particular about types that were not registered; nil if there are none
}

// name is a type's name as a key of a map.
type name struct{ group, version, kind string }

func nameOf(t *resourcepb.Type) name {
	return name{group: t.GetGroup(), version: t.GetGroupVersion(), kind: t.GetKind()}
}

// New makes a registry. The error names every fault of every type: a name that is not well formed, or there twice, or equal to another
// one but for upper and lower case; no payload message; no scope.
func New(types ...Type) (*Registry, error) {
	r := &Registry{types: make(map[name]*Type, len(types)), partlyVisible: map[name]bool{}}
	var faults []error
	folded := map[string]*resourcepb.Type{} // in lower case, as paths of the HTTP mapping have them
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
			fault("it is there twice")
		} else if other != nil {
			fault("its name differs from %s in upper and lower case only", Name(other))
		}
		folded[lower] = t.Type
		unversioned := name{group: t.Type.GetGroup(), kind: t.Type.GetKind()}
		_, again := r.partlyVisible[unversioned]
		r.partlyVisible[unversioned] = again || t.MayRead != nil
		r.types[nameOf(t.Type)] = t.withDefaults()
	}
	if len(faults) > 0 {
		return nil, fmt.Errorf("registry: %w", errors.Join(faults...))
	}
	return r, nil
}

// NewOpen makes a registry that takes every well-formed type, with any payload, as particular describes it: its Type and Proto are
// ignored, and the scope is the namespace unless it says otherwise.
func NewOpen(particular Type) *Registry {
	particular.Type, particular.Proto = nil, nil
	if particular.Scope == ScopeUndefined {
		particular.Scope = ScopeNamespace
	}
	return &Registry{openType: particular.withDefaults()}
}

// Open reports whether the registry was made by NewOpen: types need not be registered, and have no payload message.
func (r *Registry) Open() bool { return r.openType != nil }

// Resolve returns a type of the registry. The result is shared: it must not be changed. In an open registry its Type and Proto are nil.
func (r *Registry) Resolve(t *resourcepb.Type) (*Type, bool) {
	if r.openType != nil {
		return r.openType, len(nameFaults(t)) == 0
	}
	found, ok := r.types[nameOf(t)]
	return found, ok
}

// PartlyVisible reports whether one caller may see some resources of a type's group and kind under the type's name and not see others: there are
// several group versions of it, or it has a MayRead hook. A resource can then come into a watcher's view, and leave it, by an update.
func (r *Registry) PartlyVisible(t *resourcepb.Type) bool {
	return r.openType != nil || r.partlyVisible[name{group: t.GetGroup(), kind: t.GetKind()}]
}

// Types returns the types of the registry in the order of their names. They are shared: they must not be changed. An open registry has none.
func (r *Registry) Types() []*Type {
	types := make([]*Type, 0, len(r.types))
	for _, t := range r.types {
		types = append(types, t)
	}
	slices.SortFunc(types, func(a, b *Type) int { return cmp.Compare(Name(a.Type), Name(b.Type)) })
	return types
}

// Name returns a type's name in one piece, such as "catalog.v1.Service".
func Name(t *resourcepb.Type) string {
	return t.GetGroup() + "." + t.GetGroupVersion() + "." + t.GetKind()
}

// The patterns are those of the resource API that this one is compatible with, but a group may hold '.' and '-' too, as those of
// Kubernetes do.
var (
	group   = regexp.MustCompile(`^[a-z][a-z\d_.-]*[a-z\d_]$`)
	version = regexp.MustCompile(`^v([a-z\d]+)?\d$`)
	kind    = regexp.MustCompile(`^[A-Z][A-Za-z\d]+$`)
)

// maxPart is the largest size of a part of a type's name in bytes, which is that of a part of a store's key.
const maxPart = 255

// nameFaults returns what is wrong with the name of a type.
func nameFaults(t *resourcepb.Type) (faults []string) {
	for _, part := range []struct {
		what, text string
		pattern    *regexp.Regexp
	}{
		{"group", t.GetGroup(), group},
		{"group version", t.GetGroupVersion(), version},
		{"kind", t.GetKind(), kind},
	} {
		if len(part.text) > maxPart || !part.pattern.MatchString(part.text) {
			faults = append(faults, fmt.Sprintf("the %s %.80q does not match %s, or has more than %d bytes", part.what, part.text, part.pattern, maxPart))
		}
	}
	return faults
}
