package registry_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/gofeaturespb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service/registry"
)

// A field that the older version omits, because its value is empty, keeps what only the newer version has when a client of the older version sets it: an
// object keeps its other fields. A write that would lose elements of a list is refused.
func TestOmittedFieldsKeepNewerParts(t *testing.T) {
	t.Parallel()
	type (
		address struct {
			Host string `json:"host,omitempty"`
			Port int    `json:"port,omitempty"`
		}
		newer struct {
			Address address  `json:"address,omitzero"`
			Names   []string `json:"names,omitempty"`
			Texts   []string `json:"texts,omitempty"`
		}
		older struct {
			Host string `json:"host,omitempty"`
			Name string `json:"name,omitempty"`
			Text string `json:"text,omitempty"`
		}
	)
	kind := served(t, &structpb.Struct{}, &structpb.Struct{}, registry.ConvertJSON("v2",
		func(in newer) (older, error) {
			out := older{Host: in.Address.Host, Text: in.Texts[0]}
			if len(in.Names) == 1 {
				out.Name = in.Names[0]
			}
			return out, nil
		},
		func(in older, _ *newer) (out newer, err error) {
			out.Address.Host = in.Host
			if in.Name != "" {
				out.Names = []string{in.Name}
			}
			if in.Text != "" {
				out.Texts = []string{in.Text}
			}
			return out, nil
		}))
	before := resource("v2", jsonStruct(t, newer{address{Port: 80}, []string{"a", "b"}, []string{"c", "d"}}))
	written, err := kind.ToStored(resource("v1", jsonStruct(t, older{Host: "h", Text: "c"})), before)
	if err != nil {
		t.Fatal(err)
	}
	var got newer
	fromStruct(t, written, &got)
	if got.Address != (address{"h", 80}) || len(got.Names) != 2 || len(got.Texts) != 2 {
		t.Errorf("stored is %+v, expected the port and the lists that were stored", got)
	}
	for name, change := range map[string]older{"set": {Name: "n", Text: "c"}, "removed": {}} {
		if written, err := kind.ToStored(resource("v1", jsonStruct(t, change)), before); err == nil || !strings.Contains(err.Error(), "has 2 elements") {
			t.Errorf("an element was %s: %v, %v, expected an error, because the list has two elements", name, written, err)
		}
	}
}

// The conversion shows one member of a oneof as another one, and a client of the older version removes that.
func TestRemovedOneof(t *testing.T) {
	t.Parallel()
	bookmark := &resourcepb.WatchEvent{Event: &resourcepb.WatchEvent_Bookmark_{Bookmark: &resourcepb.WatchEvent_Bookmark{Cursor: "c"}}}
	end := &resourcepb.WatchEvent{Event: &resourcepb.WatchEvent_EndOfSnapshot_{EndOfSnapshot: &resourcepb.WatchEvent_EndOfSnapshot{}}}
	kind := served(t, &resourcepb.WatchEvent{}, &resourcepb.WatchEvent{}, registry.Convert("v2",
		func(m *resourcepb.WatchEvent) (*resourcepb.WatchEvent, error) {
			if m.GetBookmark() != nil {
				return end, nil
			}
			return m, nil
		},
		func(m, _ *resourcepb.WatchEvent) (*resourcepb.WatchEvent, error) { return m, nil }))
	written, err := kind.ToStored(resource("v1", &resourcepb.WatchEvent{More: true}), resource("v2", bookmark))
	got := &resourcepb.WatchEvent{}
	if err == nil {
		err = written.GetData().UnmarshalTo(got)
	}
	if err != nil || !proto.Equal(got, &resourcepb.WatchEvent{More: true}) {
		t.Errorf("stored is %v (%v), expected no event", got, err)
	}
}

// A stored field whose name differs from that of the Go type in case only, as package json accepts it, is the same field.
func TestNamesInAnotherCase(t *testing.T) {
	t.Parallel()
	type (
		address struct{ Host string }
		newer   struct {
			Address *address
			Text    string
			Zones   map[string]int
		}
	)
	kind := served(t, &structpb.Struct{}, &structpb.Struct{}, registry.ConvertJSON("v2",
		func(in newer) (newer, error) { return in, nil },
		func(in newer, _ *newer) (newer, error) { return in, nil }))
	before := resource("v2", jsonStruct(t, map[string]any{
		"address": map[string]any{"host": "a", "port": 1}, "text": "t", "zones": map[string]any{"a": 1, "A": 2}, "other": true,
	}))
	written, err := kind.ToStored(resource("v1", jsonStruct(t, newer{Address: &address{"b"}, Zones: map[string]int{"a": 1, "B": 3}})), before)
	if err != nil {
		t.Fatal(err)
	}
	want := resource("v2", jsonStruct(t, map[string]any{
		"Address": map[string]any{"Host": "b", "port": 1}, "Text": "", "Zones": map[string]any{"a": 1, "B": 3}, "other": true,
	}))
	if !proto.Equal(written, want) {
		t.Errorf("stored is\n%v, expected\n%v", written, want)
	}
}

// A change below many levels of nesting is refused before it takes long: each level is compared with all its parts.
func TestDeepChangesAreRefused(t *testing.T) {
	t.Parallel()
	type value struct{ X any }
	kind := served(t, &structpb.Struct{}, &structpb.Struct{}, registry.ConvertJSON("v2",
		func(in value) (value, error) { return in, nil }, func(in value, _ *value) (value, error) { return in, nil }))
	nested := func(depth int, last string) *structpb.Struct {
		var x any = []any{strings.Repeat("x", 200_000), last}
		for range depth {
			x = []any{map[string]any{"name": "n", "list": x}}
		}
		return jsonStruct(t, value{x})
	}
	for depth, isRefused := range map[int]bool{1: false, 20: false, 400: true} {
		written, err := kind.ToStored(resource("v1", nested(depth, "b")), resource("v2", nested(depth, "a")))
		if !isRefused && (err != nil || !proto.Equal(written, resource("v2", nested(depth, "b")))) || isRefused && (err == nil || !strings.Contains(err.Error(), "too deep")) {
			t.Errorf("depth %d: %v, expected an error: %v", depth, err, isRefused)
		}
	}
}

// A client of the older version can change an extension.
func TestChangedExtension(t *testing.T) {
	t.Parallel()
	kind := served(t, &descriptorpb.FeatureSet{}, &descriptorpb.FeatureSet{}, registry.Convert("v2",
		func(m *descriptorpb.FeatureSet) (*descriptorpb.FeatureSet, error) { return m, nil },
		func(m, _ *descriptorpb.FeatureSet) (*descriptorpb.FeatureSet, error) { return m, nil }))
	with := func(legacy bool) *descriptorpb.FeatureSet {
		m := &descriptorpb.FeatureSet{}
		proto.SetExtension(m, gofeaturespb.E_Go, &gofeaturespb.GoFeatures{LegacyUnmarshalJsonEnum: proto.Bool(legacy)})
		return m
	}
	written, err := kind.ToStored(resource("v1", with(true)), resource("v2", with(false)))
	if want := resource("v2", with(true)); err != nil || !proto.Equal(written, want) {
		t.Errorf("stored is %v (%v), expected %v", written, err, want)
	}
}
