package conformance

import (
	"bytes"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

var payloadCases = topic{"Payload", []testCase{
	{name: "UnknownType", run: payloadUnknownType},
	{name: "UnknownFields", run: payloadUnknownFields},
	{name: "Empty", run: payloadEmpty},
}}

// checkSameInAllReads demands that every read of the store returns res, with the same bytes of the payload.
func checkSameInAllReads(s *suite, what string, w storage.Watch, res *resourcepb.Resource) {
	s.Helper()
	check := func(way string, got *resourcepb.Resource) {
		s.Helper()
		s.equal(way+" of "+what, got, res)
		if !bytes.Equal(got.GetData().GetValue(), res.GetData().GetValue()) || got.GetData().GetTypeUrl() != res.GetData().GetTypeUrl() {
			s.Fatalf("%s of %s: the payload is another", way, what)
		}
		if !bytes.Equal(got.ProtoReflect().GetUnknown(), res.ProtoReflect().GetUnknown()) {
			s.Fatalf("%s of %s: the unknown fields are others", way, what)
		}
		if (got.Data == nil) != (res.Data == nil) || (got.Owner == nil) != (res.Owner == nil) {
			s.Fatalf("%s of %s: nil became empty, or the other way round: %s", way, what, shortText(got))
		}
	}
	check("Read", s.read(res.Id))
	list := s.list(things, home, res.Id.Name)
	if len(list) != 1 {
		s.Fatalf("List of %s: %d resources", what, len(list))
	}
	check("List", list[0])
	snapshot := s.snapshot(s.watch(things, home, res.Id.Name))
	if len(snapshot) != 1 {
		s.Fatalf("the snapshot of %s: %d resources", what, len(snapshot))
	}
	check("the snapshot", snapshot[0])
	ev := s.next(w)
	if ev.GetUpsert() == nil {
		s.Fatalf("Next after a write of %s: %s", what, shortText(ev))
	}
	check("the event", subject(ev))
}

func payloadUnknownType(s *suite) {
	w := s.watchAll()
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	for what, data := range map[string]*anypb.Any{
		"every byte":             {TypeUrl: "type.example.org/unknown.Type", Value: all},
		"what is no protobuf":    {TypeUrl: "type.googleapis.com/google.protobuf.StringValue", Value: []byte{0xff, 0xff, 0xff}},
		"no bytes":               {TypeUrl: "type.example.org/unknown.Type"},
		"no type":                {Value: []byte("no type")},
		"an odd type URL":        {TypeUrl: "?#%/\\ \n💥", Value: []byte{0}},
		"what compresses well":   {TypeUrl: "x/y", Value: bytes.Repeat([]byte("ab"), 20_000)},
		"what does not compress": {TypeUrl: "x/y", Value: randomBytes(40_000)},
		"one NUL":                {TypeUrl: "x/y", Value: []byte{0}},
		"fields out of order":    {TypeUrl: "type.googleapis.com/google.protobuf.Timestamp", Value: []byte{0x10, 0x05, 0x08, 0x07, 0x08, 0x07}},
	} {
		res := newThing(what)
		res.Data = data
		res = s.write(res)
		checkSameInAllReads(s, what, w, res)
		next := clone(res)
		next.Generation += "'"
		next = s.write(next)
		checkSameInAllReads(s, what+", written again", w, next)
		s.delete(next)
		s.expectDelete(w, next)
	}
}

// unknown returns a field that no program of this repository knows.
func unknown(number protowire.Number, text string) []byte {
	field := protowire.AppendTag(nil, number, protowire.BytesType)
	field = protowire.AppendString(field, text)
	field = protowire.AppendTag(field, number+1, protowire.VarintType)
	return protowire.AppendVarint(field, 1<<40)
}

func payloadUnknownFields(s *suite) {
	w := s.watchAll()
	res := newRichThing("unknown-fields")
	for i, m := range []proto.Message{res, res.Status["s"], res.Status["s"].Conditions[0], res.Data} {
		m.ProtoReflect().SetUnknown(unknown(protowire.Number(1000+10*i), "from the future"))
	}
	stored := s.write(res)
	want := clone(res)
	want.Version = stored.Version
	s.equal("WriteCAS of unknown fields", stored, want)
	checkSameInAllReads(s, "unknown fields", w, want)
	if _, ok := storage.As[storage.Transactor](s.b); ok {
		want.Version = s.commit(storage.Op{Write: want})[0].Version
		checkSameInAllReads(s, "unknown fields after Commit", w, want)
	}
	s.delete(want)
	s.expectDelete(w, want)
}

func payloadEmpty(s *suite) {
	w := s.watchAll()
	for name, res := range map[string]*resourcepb.Resource{
		"bare":         {},
		"empty-any":    {Data: &anypb.Any{}},
		"empty-status": {Status: map[string]*resourcepb.Status{"": {}}},
		"empty-meta":   {Metadata: map[string]string{"": ""}},
	} {
		res.Id = thingID(name)
		checkSameInAllReads(s, name, w, s.write(res))
	}
}
