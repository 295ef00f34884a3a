package codec

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	"pgregory.net/rapid"

	"github.com/ashlar-dev/storage/resourcepb"
)

func drawID(t *rapid.T, label string) *resourcepb.ID {
	if rapid.Float64().Draw(t, label) < 0.1 {
		return nil
	}
	text := rapid.String()
	id := &resourcepb.ID{Uid: text.Draw(t, "uid"), Name: text.Draw(t, "name")}
	if rapid.Bool().Draw(t, "typed") {
		id.Type = &resourcepb.Type{Group: text.Draw(t, "group"), GroupVersion: text.Draw(t, "gv"), Kind: text.Draw(t, "kind")}
	}
	if rapid.Bool().Draw(t, "tenant") {
		id.Tenancy = &resourcepb.Tenancy{Partition: text.Draw(t, "partition"), Namespace: text.Draw(t, "namespace")}
	}
	return id
}

func drawResource(t *rapid.T) *resourcepb.Resource {
	text := rapid.String()
	res := &resourcepb.Resource{
		Id: drawID(t, "id"), Owner: drawID(t, "owner"), Generation: text.Draw(t, "generation"),
		Metadata: rapid.MapOfN(text, text, 0, 4).Draw(t, "metadata"),
	}
	for _, k := range rapid.SliceOfN(text, 0, 3).Draw(t, "statuses") {
		if res.Status == nil {
			res.Status = map[string]*resourcepb.Status{}
		}
		res.Status[k] = &resourcepb.Status{ObservedGeneration: text.Draw(t, "observed"),
			Conditions: []*resourcepb.Condition{{Type: text.Draw(t, "condition"), State: resourcepb.Condition_STATE_TRUE}}}
	}
	if rapid.Bool().Draw(t, "with author") {
		res.Author = text.Draw(t, "author")
	}
	if rapid.Bool().Draw(t, "payload") {
		res.Data = &anypb.Any{TypeUrl: text.Draw(t, "url"), Value: rapid.SliceOf(rapid.Byte()).Draw(t, "value")}
	}
	return res
}

// Encode and proto.Marshal return the same bytes, and Size returns their number.
func TestEncodePlain(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		res := drawResource(t)
		if rapid.Bool().Draw(t, "without statuses") {
			res.Status = nil
		}
		want, err := proto.MarshalOptions{Deterministic: true}.Marshal(res)
		if err != nil {
			t.Fatal(err)
		}
		res.Version = rapid.String().Draw(t, "version")
		got, err := Append([]byte("before"), res)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != "before"+string(want) || Size(res) != len(want) {
			t.Fatalf("plain %v, size %d: got %x, expected %x", plain(res), Size(res), got, want)
		}
	})
}

// Text that is not UTF-8 is refused in every field.
func TestEncodeRequiresUTF8(t *testing.T) {
	t.Parallel()
	bad := "\xff"
	for _, res := range []*resourcepb.Resource{
		{Generation: bad}, {Author: bad}, {Metadata: map[string]string{bad: ""}}, {Metadata: map[string]string{"": bad}}, {Data: &anypb.Any{TypeUrl: bad}},
		{Id: &resourcepb.ID{Uid: bad}}, {Owner: &resourcepb.ID{Name: bad}},
		{Id: &resourcepb.ID{Type: &resourcepb.Type{Group: bad}}}, {Id: &resourcepb.ID{Type: &resourcepb.Type{GroupVersion: bad}}},
		{Id: &resourcepb.ID{Type: &resourcepb.Type{Kind: bad}}}, {Id: &resourcepb.ID{Tenancy: &resourcepb.Tenancy{Partition: bad}}},
		{Id: &resourcepb.ID{Tenancy: &resourcepb.Tenancy{Namespace: bad}}},
	} {
		if data, err := Encode(res); err == nil {
			t.Errorf("%v was encoded as %x", res, data)
		}
	}
}

// Resources written by this program take the fast path and decode correctly.
func TestDecodePlain(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		res := drawResource(t)
		if res.Author != "" {
			data, err := Encode(res)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := Decode(data, ""); err != nil || !proto.Equal(got, res) {
				t.Fatalf("got %v, %v, expected %v", got, err, res)
			}
			res.Author = ""
		}
		data, err := Encode(res)
		if err != nil {
			t.Fatal(err)
		}
		got, plain := decodePlain(data, false)
		if !plain || !proto.Equal(got, res) {
			t.Fatalf("plain %v: got %v, expected %v", plain, got, res)
		}
		adopted, plain := decodePlain(slices.Concat(data, []byte("behind"))[:len(data)], true)
		if !plain || !proto.Equal(adopted, res) || cap(adopted.GetData().GetValue()) > len(res.GetData().GetValue()) {
			t.Fatalf("adopted, plain %v: got %v, expected %v", plain, adopted, res)
		}
		for i := range data {
			data[i] = 'x'
		}
		if !proto.Equal(got, res) {
			t.Fatalf("the decoded resource aliases its bytes: got %v, expected %v", got, res)
		}
	})
}

// Decode and proto.Unmarshal return the same resource or both fail, for any bytes.
func FuzzDecodePlain(f *testing.F) {
	res := full(f)
	for _, m := range []*resourcepb.Resource{{}, res, {Id: &resourcepb.ID{}, Data: &anypb.Any{}}, {Metadata: map[string]string{"": ""}}} {
		data, err := Encode(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
		f.Add(append(append([]byte(nil), data...), data...))
		f.Add(data[:len(data)/2])
	}
	stripped := full(f)
	for _, m := range []proto.Message{stripped, stripped.Id, stripped.Id.Type, stripped.Id.Tenancy, stripped.Owner, stripped.Data, stripped.Status["s"]} {
		m.ProtoReflect().SetUnknown(nil)
	}
	data, err := Encode(stripped)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add(append(append([]byte(nil), data...), 0x22, 0x01, 'g'))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, plain := decodePlain(data, false)
		if adopted, too := decodePlain(data, true); too != plain || plain && !proto.Equal(adopted, got) {
			t.Fatalf("adopted, %v: got %v, otherwise %v: %v", too, adopted, plain, got)
		}
		if !plain {
			return
		}
		want := new(resourcepb.Resource)
		if err := proto.Unmarshal(data, want); err != nil {
			t.Fatalf("%v was decoded, expected %v", got, err)
		}
		if !proto.Equal(got, want) {
			t.Fatalf("got %v, expected %v", got, want)
		}
	})
}

// A new field of these messages must be added to the fast path. Until then decodePlain would refuse it and appendPlain omit it.
func TestPlainCoversAllFields(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		message proto.Message
		fields  protoreflect.FieldNumber
	}{{&resourcepb.Resource{}, 7}, {&resourcepb.ID{}, 4}, {&resourcepb.Type{}, 3}, {&resourcepb.Tenancy{}, 2}, {&anypb.Any{}, 2}} {
		fields := c.message.ProtoReflect().Descriptor().Fields()
		for i := range fields.Len() {
			field := fields.Get(i)
			if field.Name() == "author" || field.Name() == "ttl" {
				continue // a resource with such a field does not take the fast path
			}
			if field.Number() > c.fields || field.Kind() != protoreflect.StringKind && field.Kind() != protoreflect.MessageKind && field.Kind() != protoreflect.BytesKind {
				t.Errorf("encode.go and decode.go do not support %s", field.FullName())
			}
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	res := full(b)
	res.Status, res.Author, res.Ttl = nil, "", nil
	for _, m := range []proto.Message{res, res.Id, res.Id.Type, res.Id.Tenancy, res.Owner, res.Data} {
		m.ProtoReflect().SetUnknown(nil)
	}
	res.Data.Value = make([]byte, 500)
	data, err := Encode(res)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("plain", func(b *testing.B) {
		for b.Loop() {
			if _, plain := decodePlain(data, false); !plain {
				b.Fatal("not plain")
			}
		}
	})
	b.Run("proto.Unmarshal", func(b *testing.B) {
		for b.Loop() {
			if err := proto.Unmarshal(data, new(resourcepb.Resource)); err != nil {
				b.Fatal(err)
			}
		}
	})
}
