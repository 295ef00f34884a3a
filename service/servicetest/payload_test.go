package servicetest

import (
	"bytes"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service/registry"
)

var payloadCases = topic{"Payload", []testCase{
	{name: "UnknownFields", rules: []int{21}, run: payloadFields},
	{name: "UnknownTypes", rules: []int{21}, run: payloadTypes},
}}

// unknown has fields that no message of the suite has.
func unknown() []byte {
	b := protowire.AppendTag(nil, 4711, protowire.BytesType)
	b = protowire.AppendString(b, "unknown")
	b = protowire.AppendTag(b, 4712, protowire.Fixed64Type)
	return protowire.AppendFixed64(b, 42)
}

// payloadFields writes a payload with fields that its type does not have, in an unusual order, and a resource
// with such fields.
func payloadFields(s *suite) {
	data := payload("content")
	data.Value = append(unknown(), data.Value...)
	for _, t := range []*resourcepb.Type{thing, site} { // with hooks that decode it, and without
		req := &resourcepb.Resource{Id: idOf(t, "a"), Data: data}
		req.ProtoReflect().SetUnknown(unknown())
		w := s.watch(&resourcepb.WatchListRequest{Type: t})
		w.snapshot()
		survives := func(what string, res *resourcepb.Resource) {
			s.Helper()
			if !bytes.Equal(res.GetData().GetValue(), data.GetValue()) {
				s.Errorf("%s: the payload is %x, and was %x", what, res.GetData().GetValue(), data.GetValue())
			}
			if !bytes.Equal(res.ProtoReflect().GetUnknown(), unknown()) {
				s.Errorf("%s: the unknown fields of the resource are %x, and were %x", what, res.ProtoReflect().GetUnknown(), unknown())
			}
		}
		survives("Write", s.write(req))
		survives("the event of Write", w.upsert("a"))
		survives("a second Write", s.write(req))
		w.upsert("a")
		survives("WriteStatus", s.writeStatus(statusOf(s.read(idOf(t, "a")), "key", "message")))
		survives("the event of WriteStatus", w.upsert("a"))
		survives("Read", s.read(idOf(t, "a")))
		answer, err := s.MutateAndValidate(s.ctx, &resourcepb.MutateAndValidateRequest{Resource: req})
		s.succeeds("MutateAndValidate", err)
		survives("MutateAndValidate", answer.GetResource())
		list, err := s.List(s.ctx, &resourcepb.ListRequest{Type: t, Tenancy: anywhere})
		s.succeeds("List", err)
		survives("List", list.GetResources()[0])
	}
}

// payloadTypes has a server that accepts every type with any payload.
func payloadTypes(s *suite) {
	s.Client = s.client(s.serverOf(registry.NewOpen(registry.Type{}), s.world, s.store))
	for name, data := range map[string]*anypb.Any{
		"nobody":  {TypeUrl: "type.googleapis.com/some.Ghost", Value: unknown()},
		"garbage": {TypeUrl: "garbage", Value: bytes.Repeat([]byte{0xff}, 20)},
		"empty":   {},
		"known":   payload("content"),
	} {
		req := &resourcepb.Resource{Id: idOf(&resourcepb.Type{Group: "any", GroupVersion: "v1", Kind: "Kind"}, name), Data: data}
		s.same("Write of "+name, s.write(req).GetData(), data)
		s.same("Read of "+name, s.read(req.GetId()).GetData(), data)
		s.delete(req.GetId())
	}
}
