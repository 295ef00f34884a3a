package registry_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service/registry"
)

// served returns the type of the served version of a kind with two versions.
func served(t *testing.T, from, to proto.Message, conversion *registry.Conversion) *registry.Type {
	t.Helper()
	older, newer := plain(typ("group", "v1", "Kind")), plain(typ("group", "v2", "Kind"))
	older.Proto, newer.Proto, older.Conversion = from, to, conversion
	types, err := registry.New(older, newer)
	if err != nil {
		t.Fatal(err)
	}
	found, _ := types.Resolve(older.Type)
	return found
}

// resource returns a resource with a payload.
func resource(version string, data proto.Message) *resourcepb.Resource {
	payload := &anypb.Any{}
	if err := anypb.MarshalFrom(payload, data, proto.MarshalOptions{Deterministic: true}); err != nil {
		panic(err)
	}
	return &resourcepb.Resource{Id: &resourcepb.ID{Type: typ("group", version, "Kind"), Name: "a"}, Version: "1", Author: "me", Data: payload}
}

// The plans of the property test. The newer version has weights, colors and notes.
type (
	planV1 struct {
		Owner string            `json:"owner"`
		Limit *limitV1          `json:"limit,omitempty"`
		Steps []stepV1          `json:"steps,omitempty"`
		Zones map[string]zoneV1 `json:"zones,omitempty"`
	}
	limitV1 struct {
		Max int `json:"max"`
	}
	stepV1 struct {
		Name string `json:"name"`
		Size int    `json:"size"`
	}
	zoneV1 struct {
		Size int `json:"size"`
	}
	planV2 struct {
		Owner ownerV2           `json:"by"`
		Limit *limitV2          `json:"limit,omitempty"`
		Steps []stepV2          `json:"work,omitempty"`
		Zones map[string]zoneV2 `json:"zones,omitempty"`
		Note  string            `json:"note,omitempty"`
	}
	ownerV2 struct {
		Name  string `json:"name"`
		Color int    `json:"color,omitempty"`
	}
	limitV2 struct {
		Max, Min int
	}
	stepV2 struct {
		Name   string `json:"name"`
		Size   int    `json:"size"`
		Weight int    `json:"weight,omitempty"`
	}
	zoneV2 struct{ Size, Weight int }
)

func planFromStored(in planV2) (planV1, error) {
	out := planV1{Owner: in.Owner.Name, Zones: map[string]zoneV1{}}
	if in.Limit != nil {
		out.Limit = &limitV1{in.Limit.Max}
	}
	for _, s := range in.Steps {
		out.Steps = append(out.Steps, stepV1{s.Name, s.Size})
	}
	for name, zone := range in.Zones {
		out.Zones[name] = zoneV1{zone.Size}
	}
	return out, nil
}

func planToStored(in planV1, _ *planV2) (planV2, error) {
	out := planV2{Owner: ownerV2{Name: in.Owner}, Zones: map[string]zoneV2{}}
	if in.Limit != nil {
		out.Limit = &limitV2{Max: in.Limit.Max}
	}
	for _, s := range in.Steps {
		out.Steps = append(out.Steps, stepV2{Name: s.Name, Size: s.Size})
	}
	for name, zone := range in.Zones {
		out.Zones[name] = zoneV2{Size: zone.Size}
	}
	return out, nil
}

// Random plans of the newer version are changed by a client of the older one. Each change has the effect on the stored plan that it has on a
// model of the newer version, and no other; a plan that is written as it was read stays the same, byte for byte.
func TestRandomChangesOfOlderClients(t *testing.T) {
	t.Parallel()
	older := served(t, &structpb.Struct{}, &structpb.Struct{}, registry.ConvertJSON("v2", planFromStored, planToStored))
	rounds := 120
	if testing.Short() {
		rounds = 40
	}
	for seed := range rounds {
		r := rand.New(rand.NewPCG(uint64(seed), 1))
		number := func() int { return r.IntN(3) }
		model := planV2{Owner: ownerV2{"o", number()}, Note: strings.Repeat("n", number()), Zones: map[string]zoneV2{}}
		if number() > 0 {
			model.Limit = &limitV2{number(), number()}
		}
		for i := range r.IntN(5) {
			model.Steps = append(model.Steps, stepV2{fmt.Sprint("s", i), number(), 1 + number()})
			model.Zones[fmt.Sprint("z", i)] = zoneV2{number(), 1 + number()}
		}
		before := resource("v2", jsonStruct(t, model))
		read, err := older.FromStored(before)
		if err != nil {
			t.Fatal(seed, err)
		}
		if again, err := older.ToStored(read, before); err != nil || !proto.Equal(again, before) {
			t.Fatalf("seed %d: unchanged, the resource is %v (%v), expected %v", seed, again, err, before)
		}
		var seen planV1
		fromStruct(t, read, &seen)
		switch at := r.IntN(max(len(seen.Steps), 1)); r.IntN(8) {
		case 0:
			seen.Owner, model.Owner.Name = "p", "p"
		case 1:
			if seen.Limit != nil {
				seen.Limit.Max, model.Limit.Max = 7, 7
			} else {
				seen.Limit, model.Limit = &limitV1{7}, &limitV2{Max: 7}
			}
		case 2:
			seen.Limit, model.Limit = nil, nil
		case 3:
			if len(seen.Steps) > 0 {
				seen.Steps[at].Size, model.Steps[at].Size = 9, 9
			}
		case 4:
			if len(seen.Steps) > 0 {
				seen.Steps, model.Steps = slices.Delete(seen.Steps, at, at+1), slices.Delete(model.Steps, at, at+1)
			}
		case 5:
			seen.Steps = slices.Insert(seen.Steps, min(at, len(seen.Steps)), stepV1{"new", 4})
			model.Steps = slices.Insert(model.Steps, min(at, len(model.Steps)), stepV2{Name: "new", Size: 4})
		case 6:
			slices.Reverse(seen.Steps)
			slices.Reverse(model.Steps)
		case 7:
			name := fmt.Sprint("z", at)
			zone := model.Zones[name]
			zone.Size = 8
			if seen.Zones == nil {
				seen.Zones = map[string]zoneV1{}
			}
			seen.Zones[name], model.Zones[name] = zoneV1{8}, zone
			delete(seen.Zones, "z4")
			delete(model.Zones, "z4")
		}
		read.Data, _ = anypb.New(jsonStruct(t, seen))
		written, err := older.ToStored(read, before)
		if err != nil {
			t.Fatal(seed, err)
		}
		want := resource("v2", jsonStruct(t, model))
		got := &structpb.Struct{}
		if err := written.GetData().UnmarshalTo(got); err != nil {
			t.Fatal(err)
		}
		wanted := jsonStruct(t, model)
		if len(got.GetFields()["zones"].GetStructValue().GetFields()) == 0 {
			delete(got.GetFields(), "zones") // an empty map, which encoding/json omits
		}
		if written.Data = nil; !proto.Equal(got, wanted) {
			t.Fatalf("seed %d: %v, stored is\n%v, expected\n%v", seed, seen, got, wanted)
		}
		if want.Data = nil; !proto.Equal(written, want) {
			t.Fatalf("seed %d: the resource without its payload is %v, expected %v", seed, written, want)
		}
	}
}

// jsonStruct returns a Go value as a JSON object.
func jsonStruct(t *testing.T, v any) *structpb.Struct {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	s := &structpb.Struct{}
	if err := protojson.Unmarshal(text, s); err != nil {
		t.Fatal(err)
	}
	return s
}

// fromStruct decodes the JSON object of a resource.
func fromStruct(t *testing.T, res *resourcepb.Resource, v any) {
	t.Helper()
	s := &structpb.Struct{}
	if err := res.GetData().UnmarshalTo(s); err != nil {
		t.Fatal(err)
	}
	text, err := s.MarshalJSON()
	if err == nil {
		err = json.Unmarshal(text, v)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// full is a stored message of the newer version in TestMessagesKeepNewerFields.
func full() *resourcepb.Resource {
	out := &resourcepb.Resource{
		Id:         &resourcepb.ID{Name: "n", Uid: "u", Tenancy: &resourcepb.Tenancy{Partition: "p", Namespace: "ns"}},
		Owner:      &resourcepb.ID{Uid: "only newer"},
		Version:    "1",
		Generation: "only newer",
		Metadata:   map[string]string{"a": "1", "b": "2", "newer.x": "3"},
		Status: map[string]*resourcepb.Status{
			"s": {ObservedGeneration: "g", UpdatedAt: &timestamppb.Timestamp{Seconds: 1, Nanos: 5}, Conditions: []*resourcepb.Condition{
				{Type: "A", Reason: "r", Message: "m", State: resourcepb.Condition_STATE_TRUE}, {Type: "B", Reason: "q", Message: "l"},
			}},
			"newer": {ObservedGeneration: "h"},
		},
		Author: "me",
	}
	out.Data, _ = anypb.New(wrapperspb.String("x"))
	out.ProtoReflect().SetUnknown([]byte{0xc0, 0x3e, 1}) // field 1000
	return out
}

// older removes what the older version lacks.
func older(m *resourcepb.Resource) (*resourcepb.Resource, error) {
	out := proto.CloneOf(m)
	out.ProtoReflect().SetUnknown(nil)
	out.Owner, out.Generation = nil, ""
	out.GetId().Uid = ""
	if tenancy := out.GetId().GetTenancy(); tenancy != nil {
		tenancy.Namespace = ""
	}
	for key := range out.GetMetadata() {
		if strings.HasPrefix(key, "newer.") {
			delete(out.Metadata, key)
		}
	}
	delete(out.Status, "newer")
	for _, s := range out.GetStatus() {
		if s.GetUpdatedAt() != nil {
			s.UpdatedAt.Nanos = 0
		}
		for _, c := range s.GetConditions() {
			c.Message = ""
		}
	}
	return out, nil
}

// Each kind of field of a message keeps what only the newer version has.
func TestMessagesKeepNewerFields(t *testing.T) {
	t.Parallel()
	convert := registry.Convert("v2", older, func(m, _ *resourcepb.Resource) (*resourcepb.Resource, error) { return m, nil })
	kind := served(t, &resourcepb.Resource{}, &resourcepb.Resource{}, convert)
	other, _ := anypb.New(wrapperspb.String("y"))
	for name, c := range map[string]struct{ change, want func(*resourcepb.Resource) }{
		"nothing":           {func(*resourcepb.Resource) {}, func(*resourcepb.Resource) {}},
		"text":              {func(m *resourcepb.Resource) { m.Version = "2" }, func(m *resourcepb.Resource) { m.Version = "2" }},
		"cleared text":      {func(m *resourcepb.Resource) { m.Version = "" }, func(m *resourcepb.Resource) { m.Version = "" }},
		"nested":            {func(m *resourcepb.Resource) { m.Id.Name = "m" }, func(m *resourcepb.Resource) { m.Id.Name = "m" }},
		"nested deeper":     {func(m *resourcepb.Resource) { m.Id.Tenancy.Partition = "q" }, func(m *resourcepb.Resource) { m.Id.Tenancy.Partition = "q" }},
		"removed message":   {func(m *resourcepb.Resource) { m.Id.Tenancy = nil }, func(m *resourcepb.Resource) { m.Id.Tenancy = nil }},
		"hidden message":    {func(m *resourcepb.Resource) { m.Owner = &resourcepb.ID{Name: "o"} }, func(m *resourcepb.Resource) { m.Owner.Name = "o" }},
		"key of a map":      {func(m *resourcepb.Resource) { m.Metadata["a"] = "9" }, func(m *resourcepb.Resource) { m.Metadata["a"] = "9" }},
		"new key":           {func(m *resourcepb.Resource) { m.Metadata["c"] = "9" }, func(m *resourcepb.Resource) { m.Metadata["c"] = "9" }},
		"removed key":       {func(m *resourcepb.Resource) { delete(m.Metadata, "a") }, func(m *resourcepb.Resource) { delete(m.Metadata, "a") }},
		"all keys removed":  {func(m *resourcepb.Resource) { m.Metadata = nil }, func(m *resourcepb.Resource) { m.Metadata = map[string]string{"newer.x": "3"} }},
		"message in a map":  {func(m *resourcepb.Resource) { m.Status["s"].ObservedGeneration = "i" }, func(m *resourcepb.Resource) { m.Status["s"].ObservedGeneration = "i" }},
		"new message":       {func(m *resourcepb.Resource) { m.Status["t"] = &resourcepb.Status{} }, func(m *resourcepb.Resource) { m.Status["t"] = &resourcepb.Status{} }},
		"element of a list": {func(m *resourcepb.Resource) { m.Status["s"].Conditions[0].State = 2 }, func(m *resourcepb.Resource) { m.Status["s"].Conditions[0].State = 2 }},
		"removed element":   {func(m *resourcepb.Resource) { m.Status["s"].Conditions = m.Status["s"].Conditions[1:] }, func(m *resourcepb.Resource) { m.Status["s"].Conditions = m.Status["s"].Conditions[1:] }},
		"timestamp": {
			func(m *resourcepb.Resource) { m.Status["s"].UpdatedAt = &timestamppb.Timestamp{Seconds: 2} },
			func(m *resourcepb.Resource) { m.Status["s"].UpdatedAt = &timestamppb.Timestamp{Seconds: 2} }, // a value, so without the nanoseconds
		},
		"any": {func(m *resourcepb.Resource) { m.Data = other }, func(m *resourcepb.Resource) { m.Data = other }},
		"unknown field": {
			func(m *resourcepb.Resource) { m.ProtoReflect().SetUnknown([]byte{0xc8, 0x3e, 2}) },
			func(m *resourcepb.Resource) { m.ProtoReflect().SetUnknown([]byte{0xc0, 0x3e, 1, 0xc8, 0x3e, 2}) },
		},
	} {
		before := resource("v2", full())
		read, err := kind.FromStored(before)
		if err != nil {
			t.Fatal(name, err)
		}
		m, want := &resourcepb.Resource{}, full()
		if err := read.GetData().UnmarshalTo(m); err != nil {
			t.Fatal(err)
		}
		c.change(m)
		c.want(want)
		read.Data, _ = anypb.New(m)
		written, err := kind.ToStored(read, before)
		if err != nil {
			t.Fatal(name, err)
		}
		got := &resourcepb.Resource{}
		if err := written.GetData().UnmarshalTo(got); err != nil || !proto.Equal(got, want) {
			t.Errorf("%s: stored is\n%v (%v), expected\n%v", name, got, err, want)
		}
	}
}

// A oneof has the member that the client of the older version has set, and keeps a newer member if it has set none.
func TestOneofsKeepNewerMembers(t *testing.T) {
	t.Parallel()
	bookmark := &resourcepb.WatchEvent{Event: &resourcepb.WatchEvent_Bookmark_{Bookmark: &resourcepb.WatchEvent_Bookmark{Cursor: "c"}}}
	kind := served(t, &resourcepb.WatchEvent{}, &resourcepb.WatchEvent{}, registry.Convert("v2",
		func(m *resourcepb.WatchEvent) (*resourcepb.WatchEvent, error) {
			if m.GetBookmark() != nil {
				return &resourcepb.WatchEvent{More: m.GetMore()}, nil
			}
			return m, nil
		},
		func(m, _ *resourcepb.WatchEvent) (*resourcepb.WatchEvent, error) { return m, nil }))
	end := &resourcepb.WatchEvent{Event: &resourcepb.WatchEvent_EndOfSnapshot_{EndOfSnapshot: &resourcepb.WatchEvent_EndOfSnapshot{}}}
	kept := proto.CloneOf(bookmark)
	kept.More = true
	for _, c := range []struct{ before, written, want *resourcepb.WatchEvent }{
		{bookmark, &resourcepb.WatchEvent{More: true}, kept},
		{bookmark, end, end},
		{end, &resourcepb.WatchEvent{}, &resourcepb.WatchEvent{}},
	} {
		written, err := kind.ToStored(resource("v1", c.written), resource("v2", c.before))
		got := &resourcepb.WatchEvent{}
		if err == nil {
			err = written.GetData().UnmarshalTo(got)
		}
		if err != nil || !proto.Equal(got, c.want) {
			t.Errorf("%v replaces %v: %v (%v), expected %v", c.written, c.before, got, err, c.want)
		}
	}
}

// A version that has one element of a list cannot change it, unless its conversion keeps the others.
func TestPartsOfLists(t *testing.T) {
	t.Parallel()
	down := func(m *resourcepb.Status) (*resourcepb.Condition, error) { return m.GetConditions()[0], nil }
	alone := func(m *resourcepb.Condition, _ *resourcepb.Status) (*resourcepb.Status, error) {
		return &resourcepb.Status{Conditions: []*resourcepb.Condition{m}}, nil
	}
	keeping := func(m *resourcepb.Condition, stored *resourcepb.Status) (*resourcepb.Status, error) {
		out := &resourcepb.Status{Conditions: []*resourcepb.Condition{m}}
		if stored != nil {
			out.Conditions = append(out.Conditions, stored.GetConditions()[1:]...)
		}
		return out, nil
	}
	before := resource("v2", &resourcepb.Status{Conditions: []*resourcepb.Condition{{Type: "A"}, {Type: "B"}}})
	for name, up := range map[string]func(*resourcepb.Condition, *resourcepb.Status) (*resourcepb.Status, error){"alone": alone, "keeping": keeping} {
		kind := served(t, &resourcepb.Condition{}, &resourcepb.Status{}, registry.Convert("v2", down, up))
		if same, err := kind.ToStored(resource("v1", &resourcepb.Condition{Type: "A"}), before); err != nil || !proto.Equal(same, before) {
			t.Errorf("%s, unchanged: %v, %v", name, same, err)
		}
		written, err := kind.ToStored(resource("v1", &resourcepb.Condition{Type: "C"}), before)
		var failed *registry.ConversionError
		if name == "alone" {
			if !errors.As(err, &failed) || !failed.IsWritten || !strings.Contains(err.Error(), "ashlar.resource.v1.Status.conditions has 2 elements") {
				t.Errorf("a change without the other element: %v, %v", written, err)
			}
			continue
		}
		if want := resource("v2", &resourcepb.Status{Conditions: []*resourcepb.Condition{{Type: "C"}, {Type: "B"}}}); err != nil || !proto.Equal(written, want) {
			t.Errorf("a change with the other element: %v (%v), expected %v", written, err, want)
		}
	}
}

// A conversion that returns nothing or another message fails, and so does one of an unexpected payload.
func TestWrongConversions(t *testing.T) {
	t.Parallel()
	text := resource("v2", wrapperspb.String("x"))
	for want, convert := range map[string]func(proto.Message) (proto.Message, error){
		"the conversion returned no google.protobuf.StringValue":                                       func(proto.Message) (proto.Message, error) { return nil, nil },
		"the conversion returned a google.protobuf.Int64Value, expected a google.protobuf.StringValue": func(proto.Message) (proto.Message, error) { return wrapperspb.Int64(1), nil },
		"the conversion is from *wrapperspb.Int64Value, not from *wrapperspb.StringValue":              registry.Convert("v2", func(m *wrapperspb.Int64Value) (*wrapperspb.Int64Value, error) { return m, nil }, nil).FromStored,
	} {
		kind := served(t, &wrapperspb.StringValue{}, &wrapperspb.StringValue{}, &registry.Conversion{
			Stored: "v2", FromStored: convert, ToStored: func(m, _ proto.Message) (proto.Message, error) { return m, nil },
		})
		_, err := kind.FromStored(text)
		if failed := (*registry.ConversionError)(nil); !errors.As(err, &failed) || failed.IsWritten || failed.Err.Error() != want {
			t.Errorf("the error is %v, expected %s", err, want)
		}
		if _, err := kind.FromStored(resource("v2", wrapperspb.Int64(1))); err == nil || !strings.Contains(err.Error(), `the payload is "google.protobuf.Int64Value"`) {
			t.Errorf("another payload: %v", err)
		}
	}
}

// A resource that is stored in the served version is converted when it is read, and the hooks of both versions get the stored version.
func TestHooksOfServedVersion(t *testing.T) {
	t.Parallel()
	older, newer := plain(typ("group", "v1", "Kind")), plain(typ("group", "v2", "Kind"))
	newer.Proto = &wrapperspb.Int64Value{}
	older.Conversion = registry.Convert("v2",
		func(m *wrapperspb.Int64Value) (*wrapperspb.StringValue, error) {
			return wrapperspb.String(fmt.Sprint(m.GetValue())), nil
		},
		func(m *wrapperspb.StringValue, _ *wrapperspb.Int64Value) (*wrapperspb.Int64Value, error) {
			if m.GetValue() != "7" {
				return nil, errors.New("it is not 7")
			}
			return wrapperspb.Int64(7), nil
		})
	want := resource("v2", wrapperspb.Int64(7))
	newer.MayRead = func(_ registry.Caller, id *resourcepb.ID, res *resourcepb.Resource) error {
		if res != nil && !proto.Equal(res, want) || id.GetType().GetGroupVersion() == "v1" {
			return fmt.Errorf("MayRead got %v and %v", id, res)
		}
		return nil
	}
	newer.MayWrite = func(_ registry.Caller, res *resourcepb.Resource) error {
		if !proto.Equal(res, want) {
			return fmt.Errorf("MayWrite got %v", res)
		}
		return nil
	}
	types, err := registry.New(older, newer)
	if err != nil {
		t.Fatal(err)
	}
	bad := resource("v1", wrapperspb.String("8"))
	for _, version := range []string{"v1", "v2"} {
		kind, _ := types.Resolve(typ("group", version, "Kind"))
		for _, res := range []*resourcepb.Resource{want, resource("v1", wrapperspb.String("7"))} {
			lifted, err := kind.Lift(res)
			if err != nil || !proto.Equal(lifted, want) {
				t.Errorf("%s: lifted to %v (%v), expected %v", version, lifted, err, want)
			}
			if err := errors.Join(kind.MayRead(nil, res.GetId(), nil), kind.MayRead(nil, res.GetId(), res), kind.MayWrite(nil, res)); err != nil {
				t.Error(version, err)
			}
		}
		other := typ("group", "v3", "Kind") // not registered
		if err := kind.MayRead(nil, &resourcepb.ID{Type: other}, nil); err != nil {
			t.Error(version, err)
		}
		for name, err := range map[string]error{"MayRead": kind.MayRead(nil, bad.GetId(), bad), "MayWrite": kind.MayWrite(nil, bad)} {
			if failed := (*registry.ConversionError)(nil); !errors.As(err, &failed) || failed.IsWritten {
				t.Errorf("%s: %s of a resource that cannot be converted: %v", version, name, err)
			}
		}
	}
}

// The function ToStored gets the stored value, and nil for a new resource.
func TestToStoredGetsStored(t *testing.T) {
	t.Parallel()
	type value struct{ A, B string }
	kind := served(t, &structpb.Struct{}, &structpb.Struct{}, registry.ConvertJSON("v2",
		func(in value) (value, error) { return in, nil },
		func(in value, stored *value) (value, error) {
			in.B = "new"
			if stored != nil {
				in.B = "replaces " + stored.A
			}
			return in, nil
		}))
	written := resource("v1", jsonStruct(t, value{A: "a"}))
	made, err := kind.ToStored(written, nil)
	if want := resource("v2", jsonStruct(t, value{"a", "new"})); err != nil || !proto.Equal(made, want) {
		t.Errorf("a new resource is %v (%v), expected %v", made, err, want)
	}
	made, err = kind.ToStored(written, resource("v2", jsonStruct(t, value{"b", "b"})))
	if want := resource("v2", jsonStruct(t, value{"a", "b"})); err != nil || !proto.Equal(made, want) {
		t.Errorf("a replaced resource is %v (%v), expected %v", made, err, want)
	}
}
