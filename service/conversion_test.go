package service_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/resourcepb/resourcegrpc"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/registry"
)

// routeV1 is the payload of the served version of a route, and routeV2 of the stored one.
type (
	routeV1 struct {
		Host string  `json:"host"`
		Port int     `json:"port,omitempty"`
		Tags []tagV1 `json:"tags,omitempty"`
	}
	tagV1 struct {
		Name string `json:"name"`
		Text string `json:"text,omitempty"`
	}
	routeV2 struct {
		Address addressV2 `json:"address"`
		Tags    []tagV2   `json:"tags,omitempty"`
		Weight  int       `json:"weight,omitempty"`
	}
	addressV2 struct {
		Host   string `json:"host"`
		Port   int    `json:"port,omitempty"`
		Secure bool   `json:"secure,omitempty"`
	}
	tagV2 struct {
		Name  string `json:"name"`
		Text  string `json:"text,omitempty"`
		Color string `json:"color,omitempty"`
	}
)

var errNoHost = errors.New("the host is missing")

func routeFromStored(in routeV2) (routeV1, error) {
	out := routeV1{Host: in.Address.Host, Port: in.Address.Port}
	for _, t := range in.Tags {
		out.Tags = append(out.Tags, tagV1{t.Name, t.Text})
	}
	if in.Address.Host == "" {
		return out, errNoHost
	}
	return out, nil
}

func routeToStored(in routeV1, _ *routeV2) (routeV2, error) {
	out := routeV2{Address: addressV2{Host: in.Host, Port: in.Port}}
	for _, t := range in.Tags {
		out.Tags = append(out.Tags, tagV2{Name: t.Name, Text: t.Text})
	}
	if in.Port < 0 {
		return out, errors.New("the port is negative")
	}
	return out, nil
}

// routeType returns the type of routes in a group version.
func routeType(version string) *resourcepb.Type {
	return &resourcepb.Type{Group: "demo", GroupVersion: version, Kind: "Route"}
}

// routes is a registry of routes that are stored as v2 and served as v1, too, with the hooks of hooked.
func routes(t *testing.T, hooked registry.Type) *registry.Registry {
	t.Helper()
	hooked.Type, hooked.Proto, hooked.Scope = routeType("v2"), &structpb.Struct{}, registry.ScopeNamespace
	types, err := registry.New(
		registry.Type{
			Type: routeType("v1"), Proto: &structpb.Struct{}, Scope: registry.ScopeNamespace,
			Conversion: registry.ConvertJSON("v2", routeFromStored, routeToStored),
		},
		hooked,
		registry.Type{Type: albumType, Proto: &structpb.Struct{}, Scope: registry.ScopeNamespace},
	)
	if err != nil {
		t.Fatal(err)
	}
	return types
}

// route returns a route in a group version with a payload of JSON text.
func route(name, version, text string) *resourcepb.Resource {
	s := &structpb.Struct{}
	if err := protojson.Unmarshal([]byte(text), s); err != nil {
		panic(err)
	}
	data, _ := anypb.New(s)
	return &resourcepb.Resource{Id: &resourcepb.ID{Type: routeType(version), Name: name}, Data: data}
}

// content returns the group version and the payload of a route as JSON text.
func content(res *resourcepb.Resource) string {
	s := &structpb.Struct{}
	if res.GetData() == nil {
		return res.GetId().GetType().GetGroupVersion() + " without a payload"
	}
	if err := res.GetData().UnmarshalTo(s); err != nil {
		return err.Error()
	}
	text, _ := s.MarshalJSON()
	plain, _ := structpb.NewValue(nil)
	_ = protojson.Unmarshal(text, plain)
	return res.GetId().GetType().GetGroupVersion() + fmt.Sprint(plain.AsInterface())
}

// routeWorld is a store with a service of routes.
type routeWorld struct {
	t      *testing.T
	ctx    context.Context
	store  storage.Backend
	server *service.Server
	client resourcegrpc.ResourceServiceClient
}

func newRouteWorld(t *testing.T, hooked registry.Type) *routeWorld {
	t.Helper()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), "x-consul-consistency-mode", "consistent"), 3*time.Minute)
	t.Cleanup(cancel)
	b := inmem.New(nil)
	t.Cleanup(func() { b.Close() })
	server := service.New(b, routes(t, hooked), nil)
	return &routeWorld{t, ctx, b, server, server.Client()}
}

// write writes a route and returns the answer.
func (w *routeWorld) write(res *resourcepb.Resource) *resourcepb.Resource {
	w.t.Helper()
	out, err := w.client.Write(w.ctx, &resourcepb.WriteRequest{Resource: res})
	if err != nil {
		w.t.Fatal(err)
	}
	return out.GetResource()
}

// read reads a route in a group version.
func (w *routeWorld) read(name, version string) *resourcepb.Resource {
	w.t.Helper()
	out, err := w.client.Read(w.ctx, &resourcepb.ReadRequest{Id: &resourcepb.ID{Type: routeType(version), Name: name}})
	if err != nil {
		w.t.Fatal(err)
	}
	return out.GetResource()
}

const (
	fullV2 = `{"address": {"host": "a", "port": 1, "secure": true}, "weight": 5, "next": [1], "tags": [{"name": "x", "color": "red"}, {"name": "y", "text": "t", "color": "blue"}]}`
	fullV1 = "v1map[host:a port:1 tags:[map[name:x] map[name:y text:t]]]"
)

// A client of an older version reads a resource of a newer one and writes it back, unchanged or changed. The fields that only the newer version has
// remain, at any depth.
func TestOlderClientKeepsNewerFields(t *testing.T) {
	t.Parallel()
	w := newRouteWorld(t, registry.Type{})
	for _, c := range []struct {
		name   string
		change func(fields map[string]*structpb.Value)
		want   string
	}{
		{"nothing", func(map[string]*structpb.Value) {}, fullV2},
		{"port", func(f map[string]*structpb.Value) { f["port"] = structpb.NewNumberValue(2) },
			`{"address": {"host": "a", "port": 2, "secure": true}, "weight": 5, "next": [1], "tags": [{"name": "x", "color": "red"}, {"name": "y", "text": "t", "color": "blue"}]}`},
		{"no port", func(f map[string]*structpb.Value) { delete(f, "port") },
			`{"address": {"host": "a", "secure": true}, "weight": 5, "next": [1], "tags": [{"name": "x", "color": "red"}, {"name": "y", "text": "t", "color": "blue"}]}`},
		{"text of a tag", func(f map[string]*structpb.Value) {
			f["tags"].GetListValue().GetValues()[0].GetStructValue().Fields["text"] = structpb.NewStringValue("u")
		}, `{"address": {"host": "a", "port": 1, "secure": true}, "weight": 5, "next": [1], "tags": [{"name": "x", "text": "u", "color": "red"}, {"name": "y", "text": "t", "color": "blue"}]}`},
		{"fewer tags", func(f map[string]*structpb.Value) {
			f["tags"].GetListValue().Values = f["tags"].GetListValue().GetValues()[1:]
		}, `{"address": {"host": "a", "port": 1, "secure": true}, "weight": 5, "next": [1], "tags": [{"name": "y", "text": "t", "color": "blue"}]}`},
		{"no tags", func(f map[string]*structpb.Value) { delete(f, "tags") },
			`{"address": {"host": "a", "port": 1, "secure": true}, "weight": 5, "next": [1]}`},
	} {
		for _, versioned := range []bool{true, false} {
			before := w.write(route("r", "v2", fullV2))
			seen := w.read("r", "v1")
			if got := content(seen); got != fullV1 || seen.GetVersion() != before.GetVersion() {
				t.Fatalf("%s: read %s, expected %s", c.name, got, fullV1)
			}
			s := &structpb.Struct{}
			if err := seen.GetData().UnmarshalTo(s); err != nil {
				t.Fatal(err)
			}
			c.change(s.GetFields())
			seen.Data, _ = anypb.New(s)
			if !versioned {
				seen.Version = ""
			}
			answer := w.write(seen)
			if want := "v1" + fmt.Sprint(s.AsMap()); content(answer) != want {
				t.Errorf("%s: the answer is %s, expected %s", c.name, content(answer), want)
			}
			if got, want := content(w.read("r", "v2")), content(route("r", "v2", c.want)); got != want {
				t.Errorf("%s: stored is\n%s, expected\n%s", c.name, got, want)
			}
			stored := w.read("r", "*")
			if c.name == "nothing" && !proto.Equal(stored.GetData(), before.GetData()) || stored.GetId().GetType().GetGroupVersion() != "v2" {
				t.Errorf("%s: stored is %v, expected the same bytes as before, %v", c.name, stored, before)
			}
		}
	}
}

// drain returns the messages of a stream up to one for which isLast is true.
func drain[M any](t *testing.T, s grpc.ServerStreamingClient[M], isLast func(*M) bool) (all []*M) {
	t.Helper()
	for {
		m, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if all = append(all, m); isLast(m) {
			return all
		}
	}
}

// Lists, pages, watches, past states and statuses have the requested version.
func TestAllReadsConvert(t *testing.T) {
	t.Parallel()
	w := newRouteWorld(t, registry.Type{})
	here := &resourcepb.Tenancy{Partition: "default", Namespace: "default"}
	first := w.write(route("a", "v1", `{"host": "a"}`))
	w.write(route("b", "v2", `{"address": {"host": "b"}, "weight": 1}`))
	const a, b = "v1map[host:a]", "v1map[host:b]"
	listed, err := w.client.List(w.ctx, &resourcepb.ListRequest{Type: routeType("v1"), Tenancy: here})
	if err != nil || len(listed.GetResources()) != 2 || content(listed.GetResources()[0]) != a || content(listed.GetResources()[1]) != b {
		t.Errorf("listed: %v (%v), expected %s and %s", listed, err, a, b)
	}
	page, err := w.client.List(w.ctx, &resourcepb.ListRequest{Type: routeType("v1"), Tenancy: here, Limit: 1})
	if err == nil {
		page, err = w.client.List(w.ctx, &resourcepb.ListRequest{Type: routeType("v1"), Tenancy: here, Limit: 1, Continue: page.GetContinue()})
	}
	if err != nil || len(page.GetResources()) != 1 || content(page.GetResources()[0]) != b || page.GetContinue() != "" {
		t.Errorf("the second page: %v (%v), expected %s", page, err, b)
	}
	watch, err := w.client.WatchList(w.ctx, &resourcepb.WatchListRequest{Type: routeType("v1"), Before: true, Cursors: true})
	if err != nil {
		t.Fatal(err)
	}
	selected, err := w.server.History().WatchStore(w.ctx, &resourcepb.WatchStoreRequest{
		Entries: []*resourcepb.WatchEntry{{Type: routeType("v1"), Selector: &resourcepb.Selector{By: &resourcepb.Selector_Name{Name: "a"}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	status := &resourcepb.Status{ObservedGeneration: first.GetGeneration()}
	with, err := w.client.WriteStatus(w.ctx, &resourcepb.WriteStatusRequest{Id: first.GetId(), Key: "k", Status: status})
	if err != nil || content(with.GetResource()) != a || with.GetResource().GetStatus()["k"] == nil {
		t.Errorf("with a status: %v (%v), expected %s", with, err, a)
	}
	first = w.write(route("a", "v2", `{"address": {"host": "c"}, "weight": 2}`))
	if _, err := w.client.Delete(w.ctx, &resourcepb.DeleteRequest{Id: w.read("a", "v1").GetId(), Version: first.GetVersion()}); err != nil {
		t.Fatal(err)
	}
	var got []string
	var cursor string
	for _, ev := range drain(t, watch, func(ev *resourcepb.WatchEvent) bool { return ev.GetDelete() != nil }) {
		switch {
		case ev.GetUpsert() != nil:
			got = append(got, "+"+content(ev.GetUpsert().GetResource()))
		case ev.GetDelete() != nil:
			got = append(got, "-"+content(ev.GetDelete().GetResource()))
		default:
			got, cursor = append(got, "end"), ev.GetCursor()
		}
		if ev.GetBefore() != nil {
			got = append(got, "before "+content(ev.GetBefore()))
		}
	}
	const c = "v1map[host:c]"
	if want := []string{"+" + a, "+" + b, "end", "+" + a, "before " + a, "+" + c, "before " + a, "-" + c, "before " + c}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the watch has\n%v, expected\n%v", got, want)
	}
	resumed, err := w.client.WatchList(w.ctx, &resourcepb.WatchListRequest{Type: routeType("v1"), Cursor: cursor})
	if err != nil {
		t.Fatal(err)
	}
	again := drain(t, resumed, func(ev *resourcepb.WatchEvent) bool { return ev.GetDelete() != nil })
	if len(again) != 3 || content(again[1].GetUpsert().GetResource()) != c {
		t.Errorf("the resumed watch has %v", again)
	}
	for _, ev := range drain(t, selected, func(ev *resourcepb.StoreEvent) bool { return ev.GetAction() == resourcepb.Action_ACTION_DELETE }) {
		for _, res := range []*resourcepb.Resource{ev.GetNow(), ev.GetBefore()} {
			if res != nil && content(res) != a && content(res) != c {
				t.Errorf("the selected event %v has %s", ev, content(res))
			}
		}
	}
	at, err := w.server.History().ListAt(w.ctx, &resourcepb.ListAtRequest{Type: routeType("v1"), Tenancy: here, Revision: 3})
	if err != nil || len(at.GetRecords()) != 2 || content(at.GetRecords()[0].GetResource()) != a {
		t.Errorf("at revision 3: %v (%v)", at, err)
	}
	changes, err := w.server.History().Changes(w.ctx, &resourcepb.ChangesRequest{Type: routeType("v1"), Tenancy: here, After: 1})
	if err != nil {
		t.Fatal(err)
	}
	last := drain(t, changes, func(c *resourcepb.Change) bool { return c.GetNow() == nil })
	if before := last[len(last)-1].GetBefore().GetResource(); content(before) != c {
		t.Errorf("the last change is from %s, expected %s", content(before), c)
	}
}

// A resource that was stored in the older version, before the newer one existed, is served in both. The next write stores the newer version.
func TestStoredInServedVersion(t *testing.T) {
	t.Parallel()
	var hookSaw []string
	w := newRouteWorld(t, registry.Type{
		Validate: func(res *resourcepb.Resource) error { hookSaw = append(hookSaw, content(res)); return nil },
		MayRead: func(_ registry.Caller, id *resourcepb.ID, res *resourcepb.Resource) error {
			if res == nil {
				return registry.ErrNeedResource
			}
			hookSaw = append(hookSaw, content(res), id.GetType().GetGroupVersion())
			return nil
		},
		MayWrite: func(_ registry.Caller, res *resourcepb.Resource) error {
			hookSaw = append(hookSaw, content(res))
			return nil
		},
		MayList: func(_ registry.Caller, typ *resourcepb.Type, _ *resourcepb.Tenancy) error {
			hookSaw = append(hookSaw, typ.GetGroupVersion())
			return nil
		},
	})
	old := route("old", "v1", `{"host": "a", "extra": 1}`)
	store(w.ctx, t, w.store, old, "default", "v1")
	if got, want := content(w.read("old", "v1")), "v1map[extra:1 host:a]"; got != want {
		t.Errorf("as v1: %s, expected %s", got, want)
	}
	if got, want := content(w.read("old", "v2")), "v2map[address:map[host:a]]"; got != want {
		t.Errorf("as v2: %s, expected %s", got, want)
	}
	listed, err := w.client.List(w.ctx, &resourcepb.ListRequest{Type: routeType("v2"), Tenancy: &resourcepb.Tenancy{}})
	if err != nil || len(listed.GetResources()) != 1 || listed.GetResources()[0].GetId().GetType().GetGroupVersion() != "v2" {
		t.Errorf("listed as v2: %v, %v", listed, err)
	}
	res := w.read("old", "v1")
	res.Metadata = map[string]string{"finalizers": "f"}
	res = w.write(res)
	if got, want := content(w.read("old", "*")), "v2map[address:map[host:a]]"; got != want {
		t.Errorf("stored is %s, expected %s", got, want)
	}
	if _, err := w.client.Delete(w.ctx, &resourcepb.DeleteRequest{Id: res.GetId()}); err != nil {
		t.Fatal(err)
	}
	res = w.read("old", "v1")
	res.Metadata["finalizers"] = ""
	w.write(res)
	if _, err := w.store.Read(w.ctx, storage.StrongConsistency, res.GetId()); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("after the last finalizer was removed: %v, expected ErrNotFound", err)
	}
	store(w.ctx, t, w.store, &resourcepb.Resource{
		Id: route("marked", "v1", `{}`).GetId(), Data: old.GetData(), Metadata: map[string]string{"finalizers": "f"},
	}, "default", "v1")
	marked := w.read("marked", "v1")
	marked.Metadata["deletionTimestamp"] = "2026-01-02T03:04:05Z"
	w.write(marked) // the mark is the only change, although the stored version changes, too
	for _, seen := range hookSaw {
		if seen != "v2" && seen != "v2map[address:map[host:a]]" {
			t.Errorf("a hook saw %s, expected the stored version", seen)
		}
	}
	if len(hookSaw) < 10 {
		t.Errorf("the hooks saw %v only", hookSaw)
	}
}

// A resource that cannot be converted fails its reads and lists with its name, and no write replaces it. Its deletion is sent with the id alone.
func TestConversionFails(t *testing.T) {
	t.Parallel()
	w := newRouteWorld(t, registry.Type{})
	isConversion := func(err error, code codes.Code, want string) {
		t.Helper()
		if s := status.Convert(err); s.Code() != code || s.Message() != want {
			t.Errorf("the error is %v, expected %v: %s", err, code, want)
		}
	}
	written := route("bad", "v1", `{"host": "a", "port": -1}`)
	_, err := w.client.Write(w.ctx, &resourcepb.WriteRequest{Resource: written})
	isConversion(err, codes.InvalidArgument, `the resource to write demo/Route "bad" (partition "default", namespace "default") cannot be converted from group version v1 to v2: the port is negative`)
	_, err = w.client.MutateAndValidate(w.ctx, &resourcepb.MutateAndValidateRequest{Resource: written})
	isConversion(err, codes.InvalidArgument, `the resource to write demo/Route "bad" (partition "default", namespace "default") cannot be converted from group version v1 to v2: the port is negative`)

	watch, err := w.client.WatchList(w.ctx, &resourcepb.WatchListRequest{Type: routeType("v1"), Before: true, Cursors: true})
	if err != nil {
		t.Fatal(err)
	}
	drain(t, watch, func(ev *resourcepb.WatchEvent) bool { return ev.GetEndOfSnapshot() != nil })
	stored := w.write(route("bad", "v2", `{"weight": 1}`))
	const want = `the stored resource demo/Route "bad" (partition "default", namespace "default") cannot be converted from group version v2 to v1: the host is missing`
	here := &resourcepb.Tenancy{Partition: "default", Namespace: "default"}
	_, err = w.client.Read(w.ctx, &resourcepb.ReadRequest{Id: &resourcepb.ID{Type: routeType("v1"), Name: "bad"}})
	isConversion(err, codes.FailedPrecondition, want)
	for _, limit := range []int32{0, 1} {
		_, err = w.client.List(w.ctx, &resourcepb.ListRequest{Type: routeType("v1"), Tenancy: here, Limit: limit})
		isConversion(err, codes.FailedPrecondition, want)
	}
	_, err = w.server.History().ListAt(w.ctx, &resourcepb.ListAtRequest{Type: routeType("v1"), Tenancy: here})
	isConversion(err, codes.FailedPrecondition, want)
	_, err = watch.Recv()
	isConversion(err, codes.FailedPrecondition, want)
	_, err = w.client.Write(w.ctx, &resourcepb.WriteRequest{Resource: route("bad", "v1", `{"host": "a"}`)})
	isConversion(err, codes.FailedPrecondition, want)
	if now := w.read("bad", "v2"); !proto.Equal(now, stored) {
		t.Errorf("stored is %v, expected %v", now, stored)
	}
	// A stream passes the past states of a resource that was repaired or deleted.
	newer, err := w.client.WatchList(w.ctx, &resourcepb.WatchListRequest{Type: routeType("v2"), Cursors: true})
	if err != nil {
		t.Fatal(err)
	}
	at := drain(t, newer, func(ev *resourcepb.WatchEvent) bool { return ev.GetEndOfSnapshot() != nil })[1].GetCursor()
	w.write(route("bad", "v2", `{"address": {"host": "a"}}`))
	resumed, err := w.client.WatchList(w.ctx, &resourcepb.WatchListRequest{Type: routeType("v1"), Before: true, Cursor: at})
	if err != nil {
		t.Fatal(err)
	}
	idAlone := &resourcepb.Resource{Id: proto.CloneOf(stored.GetId())}
	idAlone.Id.Type = routeType("v1")
	repaired, err := resumed.Recv()
	if err != nil || content(repaired.GetUpsert().GetResource()) != "v1map[host:a]" || !proto.Equal(repaired.GetBefore(), idAlone) {
		t.Errorf("the repair is sent as %v (%v), expected it with the state before as %v", repaired, err, idAlone)
	}
	w.write(route("bad", "v2", `{"weight": 2}`))
	at = drain(t, newer, func(ev *resourcepb.WatchEvent) bool {
		return content(ev.GetUpsert().GetResource()) == "v2map[weight:2]"
	})[1].GetCursor()
	if _, err := w.client.Delete(w.ctx, &resourcepb.DeleteRequest{Id: stored.GetId()}); err != nil {
		t.Fatal(err)
	}
	if resumed, err = w.client.WatchList(w.ctx, &resourcepb.WatchListRequest{Type: routeType("v1"), Cursor: at}); err != nil {
		t.Fatal(err)
	}
	if deleted, err := resumed.Recv(); err != nil || !proto.Equal(deleted.GetDelete().GetResource(), idAlone) {
		t.Errorf("the deletion is sent as %v (%v), expected it with %v", deleted, err, idAlone)
	}
}

// A write of a served version fails if the hooks of the stored version make a resource that the served version cannot express.
func TestMutateBeyondServedVersion(t *testing.T) {
	t.Parallel()
	w := newRouteWorld(t, registry.Type{Mutate: func(res *resourcepb.Resource) error {
		res.Data = route("", "v2", `{"weight": 9}`).GetData()
		return nil
	}})
	if _, err := w.client.Write(w.ctx, &resourcepb.WriteRequest{Resource: route("a", "v1", `{"host": "a"}`)}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("the write: %v, expected FailedPrecondition", err)
	}
	if _, err := w.client.Read(w.ctx, &resourcepb.ReadRequest{Id: &resourcepb.ID{Type: routeType("v2"), Name: "a"}}); status.Code(err) != codes.NotFound {
		t.Errorf("after the write failed: %v, expected NotFound", err)
	}
}

// Clients of both versions of an owner refer to the same owner.
func TestOwnersOfTwoVersions(t *testing.T) {
	t.Parallel()
	w := newRouteWorld(t, registry.Type{})
	owner := w.write(route("owner", "v2", `{"address": {"host": "a"}}`))
	child := route("child", "v1", `{"host": "c"}`)
	child.Owner = proto.CloneOf(owner.GetId())
	child.Owner.Type = routeType("v1")
	child.Owner.Uid = ""
	if got := w.write(child).GetOwner(); !proto.Equal(got, owner.GetId()) {
		t.Errorf("the owner is %v, expected %v", got, owner.GetId())
	}
	child.Metadata = map[string]string{"a": "b"}
	w.write(child)
	early := route("early", "v2", `{"address": {"host": "e"}}`)
	early.Owner = proto.CloneOf(owner.GetId())
	early.Owner.Type = routeType("v1")
	store(w.ctx, t, w.store, early, "default", "v2")
	for _, version := range []string{"v1", "v2"} {
		early = w.read("early", "v2")
		early.Owner.Type = routeType(version)
		w.write(early) // its owner is the same
	}
	if _, err := w.client.Delete(w.ctx, &resourcepb.DeleteRequest{Id: early.GetId()}); err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{"v1", "v2"} {
		id := proto.CloneOf(owner.GetId())
		id.Type = routeType(version)
		owned, err := w.client.ListByOwner(w.ctx, &resourcepb.ListByOwnerRequest{Owner: id})
		if err != nil || len(owned.GetResources()) != 1 || content(owned.GetResources()[0]) != "v2map[address:map[host:c]]" {
			t.Errorf("owned by the owner as %s: %v, %v", version, owned, err)
		}
	}
}

// A watch of selected changes has each change in the version of the first entry that selects it, whatever the versions of the others.
func TestSelectedChangesOfTwoVersions(t *testing.T) {
	t.Parallel()
	w := newRouteWorld(t, registry.Type{})
	old := store(w.ctx, t, w.store, route("a", "v1", `{"host": "a"}`), "default", "v1")
	named := func(name string) *resourcepb.Selector {
		return &resourcepb.Selector{By: &resourcepb.Selector_Name{Name: name}}
	}
	selected, err := w.server.History().WatchStore(w.ctx, &resourcepb.WatchStoreRequest{Snapshot: true, Entries: []*resourcepb.WatchEntry{
		{Type: routeType("v1"), Selector: named("a")}, {Type: routeType("v2")},
	}})
	if err != nil {
		t.Fatal(err)
	}
	w.write(route("b", "v1", `{"host": "b"}`))
	w.write(route("a", "v2", `{"address": {"host": "c"}}`))
	if _, err := w.client.Delete(w.ctx, &resourcepb.DeleteRequest{Id: old.GetId()}); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, ev := range drain(t, selected, func(ev *resourcepb.StoreEvent) bool { return ev.GetAction() == resourcepb.Action_ACTION_DELETE }) {
		for _, res := range []*resourcepb.Resource{ev.GetNow(), ev.GetBefore()} {
			if res != nil {
				got = append(got, content(res))
			}
		}
	}
	want := []string{"v1map[host:a]", "v2map[address:map[host:b]]", "v1map[host:c]", "v1map[host:a]", "v1map[host:c]"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the selected changes are %v, expected %v", got, want)
	}
}

// Streams of two versions get the same changes, each in its version, over a connection as well.
func TestStreamsOfTwoVersions(t *testing.T) {
	t.Parallel()
	w := newRouteWorld(t, registry.Type{})
	l, err := (&net.ListenConfig{}).Listen(w.ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listening := grpc.NewServer()
	w.server.Register(listening)
	go func() { _ = listening.Serve(l) }() // it ends when it is stopped
	t.Cleanup(listening.Stop)
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	streams := map[string]resourcegrpc.ResourceService_WatchListClient{}
	for _, version := range []string{"v1", "v2", "*"} {
		if streams[version], err = resourcegrpc.NewResourceServiceClient(conn).WatchList(w.ctx, &resourcepb.WatchListRequest{Type: routeType(version)}); err != nil {
			t.Fatal(err)
		}
		drain(t, streams[version], func(ev *resourcepb.WatchEvent) bool { return ev.GetEndOfSnapshot() != nil })
	}
	store(w.ctx, t, w.store, route("a", "v1", `{"host": "a"}`), "default", "v1")
	w.write(route("b", "v2", `{"address": {"host": "b"}}`))
	for version, want := range map[string][]string{
		"v1": {"v1map[host:a]", "v1map[host:b]"},
		"v2": {"v2map[address:map[host:a]]", "v2map[address:map[host:b]]"},
		"*":  {"v1map[host:a]", "v2map[address:map[host:b]]"},
	} {
		for _, want := range want {
			if ev, err := streams[version].Recv(); err != nil || content(ev.GetUpsert().GetResource()) != want {
				t.Errorf("the stream of %s has %v (%v), expected %s", version, ev, err, want)
			}
		}
	}
}

// Two writers of different versions do not overwrite each other's changes.
func TestVersionsConflict(t *testing.T) {
	t.Parallel()
	w := newRouteWorld(t, registry.Type{})
	w.write(route("r", "v2", fullV2))
	seen := w.read("r", "v1")
	newer := w.write(route("r", "v2", `{"address": {"host": "b"}, "weight": 7}`))
	if _, err := w.client.Write(w.ctx, &resourcepb.WriteRequest{Resource: seen}); status.Code(err) != codes.Aborted {
		t.Errorf("a write at an older version: %v, expected Aborted", err)
	}
	if _, err := w.client.Write(w.ctx, &resourcepb.WriteRequest{Resource: route("r", "v1", `{"host": "c"}`), Create: true}); status.Code(err) != codes.Aborted {
		t.Errorf("a creation: %v, expected Aborted", err)
	}
	if now := w.read("r", "v2"); !proto.Equal(now, newer) {
		t.Errorf("stored is %v, expected %v", now, newer)
	}
}
