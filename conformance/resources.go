package conformance

import (
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

const strong, eventual = storage.StrongConsistency, storage.EventualConsistency

var consistencies = []storage.ReadConsistency{strong, eventual}

// The default type and tenancy of cases.
var (
	thing    = &resourcepb.Type{Group: "conformance", GroupVersion: "v1", Kind: "Thing"}
	things   = storage.UnversionedTypeFrom(thing)
	anywhere = &resourcepb.Tenancy{Partition: storage.Wildcard, Namespace: storage.Wildcard}
	home     = &resourcepb.Tenancy{Partition: "default", Namespace: "default"}
	anything = storage.UnversionedType{Group: storage.Wildcard, Kind: storage.Wildcard}
)

func newUid() string { return "uid-" + rand.Text() }

// thingID returns the id of a Thing at home, with a new uid.
func thingID(name string) *resourcepb.ID {
	return &resourcepb.ID{Uid: newUid(), Name: name, Type: clone(thing), Tenancy: clone(home)}
}

// newThing returns a resource that was never stored.
func newThing(name string) *resourcepb.Resource { return newResource(thingID(name)) }

func newResource(id *resourcepb.ID) *resourcepb.Resource {
	return &resourcepb.Resource{Id: id, Generation: "1", Metadata: map[string]string{"made-by": "conformance"}, Data: payload("new")}
}

// newChild returns a resource with an owner.
func newChild(name string, owner *resourcepb.ID) *resourcepb.Resource {
	res := newThing(name)
	res.Owner = clone(owner)
	return res
}

func payload(text string) *anypb.Any {
	data, err := anypb.New(wrapperspb.String(text))
	if err != nil {
		panic(err) // a string always encodes
	}
	return data
}

// withNewData returns res with another payload, as the argument of the next write.
func withNewData(res *resourcepb.Resource) *resourcepb.Resource {
	next := clone(res)
	next.Data = payload(rand.Text())
	return next
}

func clone[M proto.Message](m M) M { return proto.CloneOf(m) }

// withUid returns a copy of id with another uid.
func withUid(id *resourcepb.ID, uid string) *resourcepb.ID {
	other := clone(id)
	other.Uid = uid
	return other
}

// keyOf formats the key of an id; different keys have different texts.
func keyOf(id *resourcepb.ID) string {
	t, ten := id.GetType(), id.GetTenancy()
	return t.GetGroup() + "\x00" + t.GetKind() + "\x00" + ten.GetPartition() + "\x00" + ten.GetNamespace() + "\x00" + id.GetName()
}

// sizeOf returns the size that limits apply to: the size of the message without its version.
func sizeOf(res *resourcepb.Resource) int {
	bare := clone(res)
	bare.Version = ""
	return proto.Size(bare)
}

// withSize returns res with a payload that makes it size bytes large, without its version.
func withSize(res *resourcepb.Resource, size int) *resourcepb.Resource {
	for n := size; n > 0; n -= max(1, sizeOf(res)-size) {
		res.Data = &anypb.Any{TypeUrl: "conformance/noise", Value: randomBytes(n)}
		if sizeOf(res) <= size {
			break
		}
	}
	// Not every size can be reached by a payload alone, because its length takes a variable number of bytes: the generation fills
	// the gap.
	for sizeOf(res) < size {
		res.Generation += "x"
	}
	return res
}

// randomBytes returns bytes that cannot be compressed.
func randomBytes(n int) []byte {
	data := make([]byte, n)
	_, _ = rand.Read(data) // never fails
	return data
}

// withGroupVersion returns a copy of id with another group version.
func withGroupVersion(id *resourcepb.ID, groupVersion string) *resourcepb.ID {
	other := clone(id)
	other.Type.GroupVersion = groupVersion
	return other
}

// newRichThing returns a resource with all fields set.
func newRichThing(name string) *resourcepb.Resource {
	res := newChild(name, thingID("owner"))
	res.Status = map[string]*resourcepb.Status{"s": {ObservedGeneration: "1", Conditions: []*resourcepb.Condition{{Type: "Ready", Message: "m"}}}}
	res.Ttl = durationpb.New(time.Hour)
	return res
}

// inOrder sorts by the bytes of (group, kind, partition, namespace, name). No part contains NUL, so this is the order of the
// parts joined by NUL.
func inOrder(resources []*resourcepb.Resource) {
	slices.SortFunc(resources, func(a, b *resourcepb.Resource) int { return strings.Compare(keyOf(a.Id), keyOf(b.Id)) })
}

func newID(group, kind, partition, namespace, name string) *resourcepb.ID {
	return &resourcepb.ID{
		Uid: newUid(), Name: name,
		Type:    &resourcepb.Type{Group: group, GroupVersion: "v1", Kind: kind},
		Tenancy: &resourcepb.Tenancy{Partition: partition, Namespace: namespace},
	}
}

// thingNamed returns a resource whose uid depends on its name only.
func thingNamed(name string) *resourcepb.Resource {
	res := newThing(name)
	res.Id.Uid, res.Generation, res.Data = "uid-"+name, "", nil
	return res
}

func upsertEvent(res *resourcepb.Resource) *resourcepb.WatchEvent {
	return &resourcepb.WatchEvent{Event: &resourcepb.WatchEvent_Upsert_{Upsert: &resourcepb.WatchEvent_Upsert{Resource: res}}}
}

func deleteEvent(res *resourcepb.Resource) *resourcepb.WatchEvent {
	return &resourcepb.WatchEvent{Event: &resourcepb.WatchEvent_Delete_{Delete: &resourcepb.WatchEvent_Delete{Resource: res}}}
}

// subject returns the resource of an event, or nil for the end of a snapshot.
func subject(ev *resourcepb.WatchEvent) *resourcepb.Resource {
	if d := ev.GetDelete(); d != nil {
		return d.GetResource()
	}
	return ev.GetUpsert().GetResource()
}

// label returns a text that distinguishes the events of one key.
func label(ev *resourcepb.WatchEvent) string {
	if ev.GetDelete() != nil {
		return "delete " + subject(ev).GetVersion()
	}
	return "upsert " + subject(ev).GetVersion()
}

// A filter is the selection of List, ListPage and watches.
type filter struct {
	typ     storage.UnversionedType
	tenancy *resourcepb.Tenancy
	prefix  string
}

func newFilter(group, kind, partition, namespace, prefix string) filter {
	return filter{storage.UnversionedType{Group: group, Kind: kind}, &resourcepb.Tenancy{Partition: partition, Namespace: namespace}, prefix}
}

// selectFrom returns the selected resources in list order.
func (f filter) selectFrom(all []*resourcepb.Resource) []*resourcepb.Resource {
	var selected []*resourcepb.Resource
	for _, res := range all {
		if f.selects(res.Id) {
			selected = append(selected, res)
		}
	}
	inOrder(selected)
	return selected
}

// selects reports whether the filter selects an id. It compares part by part, as the contract states it.
func (f filter) selects(id *resourcepb.ID) bool {
	matches := func(pattern, value string) bool { return pattern == storage.Wildcard || pattern == value }
	return matches(f.typ.Group, id.Type.Group) && matches(f.typ.Kind, id.Type.Kind) &&
		matches(f.tenancy.Partition, id.Tenancy.Partition) && matches(f.tenancy.Namespace, id.Tenancy.Namespace) &&
		strings.HasPrefix(id.Name, f.prefix)
}

func (f filter) String() string {
	return fmt.Sprintf("%q/%q in %q/%q, prefix %q", f.typ.Group, f.typ.Kind, f.tenancy.Partition, f.tenancy.Namespace, f.prefix)
}

var allFilter = filter{anything, anywhere, ""}

var homeThings = filter{things, home, ""}
