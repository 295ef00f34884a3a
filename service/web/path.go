package web

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service/registry"
)

// The segments after a resource's name in a path.
const (
	ownedSegment   = "owned"
	statusSegment  = "status"
	historySegment = "history"
)

// The paths of one segment.
const (
	whoamiSegment    = "whoami"
	typesSegment     = "types"
	revisionsSegment = "revisions"
)

// target is the target of a path.
type target struct {
	typ   *resourcepb.Type
	codec codec
	name  string // of the resource; "" for all of the type
	sub   string // owned, status, history, the segment of a path of one, or "" for the resource itself
	key   string // of the status
}

// id returns the id in the target and the query.
func (t target) id(q query) *resourcepb.ID {
	return &resourcepb.ID{Type: t.typ, Tenancy: q.tenancy(), Name: t.name, Uid: q.get("uid")}
}

// routes resolves paths to types.
type routes struct {
	codecs     codecs
	types      map[string]*resourcepb.Type // by group/version/kind, in lower case
	otherTypes map[typeName][]typeName     // the other types as which the resources of a type are read
	open       bool
}

func newRoutes(types *registry.Registry) routes {
	r := routes{codecs: newCodecs(types), types: map[string]*resourcepb.Type{}, otherTypes: map[typeName][]typeName{}, open: types.Open()}
	for _, t := range types.Types() {
		r.types[pathOf(t.Type)] = t.Type
		for _, other := range types.Types() {
			if t != other && storage.UnversionedTypeFrom(t.Type) == storage.UnversionedTypeFrom(other.Type) && other.Converts(t.Type) {
				r.otherTypes[nameOf(t.Type)] = append(r.otherTypes[nameOf(t.Type)], nameOf(other.Type))
			}
		}
	}
	return r
}

// typeName is the name of a type as a map key, and as JSON.
type typeName struct {
	Group        string `json:"group"`
	GroupVersion string `json:"groupVersion"`
	Kind         string `json:"kind"`
}

func nameOf(t *resourcepb.Type) typeName {
	return typeName{t.GetGroup(), t.GetGroupVersion(), t.GetKind()}
}

// pathOf returns the path of a type without slashes at its ends.
func pathOf(t *resourcepb.Type) string {
	return strings.ToLower(t.GetGroup() + "/" + t.GetGroupVersion() + "/" + t.GetKind())
}

// find returns the target of a path, which may have escapes: a slash in a name is escaped.
func (r routes) find(path string) (target, error) {
	segments := strings.Split(strings.TrimPrefix(path, "/"), "/")
	for i, s := range segments {
		var err error
		if segments[i], err = url.PathUnescape(s); err != nil {
			return target{}, refuse(http.StatusBadRequest, "the path has a malformed escape: %v", err)
		}
		if !utf8.ValidString(segments[i]) {
			return target{}, refuse(http.StatusBadRequest, "the path is not UTF-8: %.80q", segments[i])
		}
	}
	if len(segments) == 4 && segments[3] == "" {
		segments = segments[:3] // a trailing slash
	}
	var t target
	switch n := len(segments); {
	case n == 1 && slices.Contains([]string{whoamiSegment, typesSegment, revisionsSegment}, segments[0]):
		t.sub = segments[0]
		return t, nil
	case n == 3:
	case n >= 4 && segments[3] == "":
		return t, noPath(path)
	case n == 4:
		t.name = segments[3]
	case n == 5 && (segments[4] == ownedSegment || segments[4] == historySegment):
		t.name, t.sub = segments[3], segments[4]
	case n >= 6 && segments[4] == statusSegment:
		// Keys of statuses often contain slashes; they need not be escaped.
		t.name, t.sub, t.key = segments[3], statusSegment, strings.Join(segments[5:], "/")
	default:
		return t, noPath(path)
	}
	err := r.resolve(&t, segments[0], segments[1], segments[2])
	return t, err
}

// resolve sets the type of a target.
func (r routes) resolve(t *target, group, version, kind string) error {
	if version == storage.Wildcard && t.name == "" {
		return r.resolveWildcard(t, group, kind)
	}
	if r.open {
		t.typ = &resourcepb.Type{Group: group, GroupVersion: version, Kind: kind}
		t.codec = r.codecs.open()
		return nil // the service checks the name
	}
	path := group + "/" + version + "/" + kind
	if typ, ok := r.types[strings.ToLower(path)]; ok {
		t.typ, t.codec = proto.CloneOf(typ), r.codecs.of(typ)
		return nil
	}
	return refuse(http.StatusNotFound, "no type is at /%.300s; openapi.json lists them", path)
}

// resolveWildcard sets the type of a target with all group versions of a kind, all kinds of a group, or all types.
func (r routes) resolveWildcard(t *target, group, kind string) error {
	t.typ, t.codec = &resourcepb.Type{Group: group, GroupVersion: storage.Wildcard, Kind: kind}, r.codecs.open()
	if r.open || kind == storage.Wildcard {
		return nil // the service checks the names
	}
	for _, typ := range r.types {
		if typ.GetGroup() == group && strings.EqualFold(typ.GetKind(), kind) {
			t.typ.Kind = typ.GetKind()
			return nil
		}
	}
	return refuse(http.StatusNotFound, "no type is at /%.300s; openapi.json lists them", group+"/"+storage.Wildcard+"/"+kind)
}

func noPath(path string) error {
	return refuse(http.StatusNotFound, "nothing is at %.300s: paths are /group/version/kind and /group/version/kind/name", path)
}

// anyType selects all types.
var anyType = &resourcepb.Type{Group: storage.Wildcard, GroupVersion: storage.Wildcard, Kind: storage.Wildcard}
