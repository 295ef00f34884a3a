package codec

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ashlar-dev/storage/resourcepb"
)

// full returns a resource with every field of every message set, including unknown fields on each level.
func full(t testing.TB) *resourcepb.Resource {
	id := func(name string) *resourcepb.ID {
		return &resourcepb.ID{Uid: "uid-" + name, Name: name,
			Type:    &resourcepb.Type{Group: "g", GroupVersion: "v1", Kind: "K"},
			Tenancy: &resourcepb.Tenancy{Partition: "p", Namespace: "n"}}
	}
	res := &resourcepb.Resource{
		Id: id("child"), Owner: id("owner"), Version: "7", Generation: "gen", Author: "author", Ttl: durationpb.New(90 * time.Second),
		Metadata: map[string]string{"a": "b", "": ""},
		Status: map[string]*resourcepb.Status{"s": {ObservedGeneration: "gen", UpdatedAt: timestamppb.Now(),
			Conditions: []*resourcepb.Condition{{Type: "t", State: resourcepb.Condition_STATE_TRUE,
				Resource: &resourcepb.Reference{Name: "r", Type: id("").Type, Tenancy: id("").Tenancy}}}}},
		Data: &anypb.Any{TypeUrl: "example.com/unknown.Type", Value: []byte{1, 2, 3}},
	}
	for i, m := range []proto.Message{res, res.Id, res.Id.Type, res.Id.Tenancy, res.Owner, res.Data, res.Status["s"]} {
		unknown := protowire.AppendTag(nil, 1000, protowire.VarintType)
		m.ProtoReflect().SetUnknown(protowire.AppendVarint(unknown, uint64(i)))
	}
	return res
}

func TestClone(t *testing.T) {
	t.Parallel()
	fields := full(t).ProtoReflect()
	for i := range fields.Descriptor().Fields().Len() {
		if f := fields.Descriptor().Fields().Get(i); !fields.Has(f) {
			t.Errorf("the test lacks the field %s", f.Name())
		}
	}
	for name, res := range map[string]*resourcepb.Resource{"full": full(t), "empty": {}, "bare id": {Id: &resourcepb.ID{}, Data: &anypb.Any{}}} {
		clone := Clone(res)
		if !proto.Equal(clone, res) {
			t.Errorf("%s: got %v, expected %v", name, clone, res)
		}
	}
	if res := full(t); !proto.Equal(WithVersion(res, "7"), res) {
		t.Errorf("WithVersion: got %v, expected %v", WithVersion(res, "7"), res)
	}
	if Clone(nil) != nil {
		t.Error("Clone(nil) is not nil")
	}
	res := full(t)
	clone := Clone(res)
	clone.Metadata["a"] = "changed"
	clone.Data.Value[0] = 99
	clone.Ttl.Seconds = 1
	clone.Id.Type.Group = "changed"
	clone.Owner.Tenancy.Partition = "changed"
	clone.Status["s"].Conditions[0].Type = "changed"
	clone.Id.ProtoReflect().GetUnknown()[0]++
	if !proto.Equal(res, fullLike(t, res)) {
		t.Errorf("modifying the clone changed the original: %v", res)
	}
}

// fullLike returns a second full resource and copies from res the only field that differs between calls of full.
func fullLike(t testing.TB, res *resourcepb.Resource) *resourcepb.Resource {
	like := full(t)
	like.Status["s"].UpdatedAt = res.Status["s"].UpdatedAt
	return like
}

func TestEncodeOmitsVersionOnly(t *testing.T) {
	t.Parallel()
	res := full(t)
	data, err := Encode(res)
	if err != nil {
		t.Fatal(err)
	}
	if len(data) != Size(res) {
		t.Errorf("Encode returned %d bytes, Size %d", len(data), Size(res))
	}
	if res.Version != "7" {
		t.Errorf("Encode changed the version to %q", res.Version)
	}
	back, err := Decode(data, "7")
	if err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(back, res) {
		t.Errorf("got %v, expected %v", back, res)
	}
	bare, err := Decode(data, "")
	if err != nil || bare.Version != "" {
		t.Errorf("the version was encoded: %q, %v", bare.GetVersion(), err)
	}
}

func BenchmarkClone(b *testing.B) {
	res := full(b)
	res.Status = nil
	b.Run("field by field", func(b *testing.B) {
		for b.Loop() {
			Clone(res)
		}
	})
	b.Run("proto.Clone", func(b *testing.B) {
		for b.Loop() {
			proto.Clone(res)
		}
	})
}

// Unknown fields that would be read as known ones, or not at all, are refused in every message of a resource. All others are kept.
func TestCheckUnknown(t *testing.T) {
	t.Parallel()
	field := func(number protowire.Number) []byte {
		return protowire.AppendFixed32(protowire.AppendTag(nil, number, protowire.Fixed32Type), 7)
	}
	nested, err := proto.Marshal(&resourcepb.Resource{Generation: "other"})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		unknown []byte
		valid   bool
	}{
		"unknown number":             {field(999), true},
		"known number, another type": {field(1), true},
		"malformed":                  {[]byte{0xff}, false},
		"open group":                 {protowire.AppendTag(nil, 999, protowire.StartGroupType), false},
		"valid, then malformed":      {append(field(999), 0xff), false},
		"known field of a resource":  {append(field(999), nested...), false},
	} {
		res := full(t)
		count := 0
		for _, m := range messagesOf(res.ProtoReflect()) {
			if strings.HasSuffix(name, "of a resource") && m != res.ProtoReflect() {
				continue
			}
			count++
			before := m.GetUnknown()
			m.SetUnknown(c.unknown)
			err := CheckUnknown(res)
			if c.valid != (err == nil) {
				t.Errorf("%s in a %s: %v, expected valid: %t", name, m.Descriptor().Name(), err, c.valid)
			}
			data, err := Encode(res)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := Decode(data, res.Version); c.valid != (err == nil && proto.Equal(got, res)) {
				t.Errorf("%s in a %s: decoded %v, error %v, expected valid: %t", name, m.Descriptor().Name(), got, err, c.valid)
			}
			m.SetUnknown(before)
		}
		if count == 0 {
			t.Errorf("%s: no message", name)
		}
	}
}

// messagesOf returns a message and all messages in it.
func messagesOf(m protoreflect.Message) []protoreflect.Message {
	found := []protoreflect.Message{m}
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.IsMap() && field.MapValue().Message() != nil:
			value.Map().Range(func(_ protoreflect.MapKey, value protoreflect.Value) bool {
				found = append(found, messagesOf(value.Message())...)
				return true
			})
		case field.IsList():
			for i := range value.List().Len() {
				found = append(found, messagesOf(value.List().Get(i).Message())...)
			}
		case !field.IsMap() && field.Message() != nil:
			found = append(found, messagesOf(value.Message())...)
		}
		return true
	})
	return found
}
