package conformance

import (
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

var limitCases = topic{"Limits", []testCase{
	{name: "LargestResource", run: limitSize},
	{name: "BadIDs", run: limitIDs},
	{name: "BadResources", run: limitResources},
	{name: "BadFilters", run: limitFilters},
	{name: "BadConsistency", run: limitConsistency},
}}

func limitSize(s *suite) {
	w := s.watchAll()
	res := s.write(withSize(newThing("largest"), s.h.MaxSize))
	s.checkStored(res)
	s.expectUpsert(w, res)
	// The version does not count, so a resource that was read can be written.
	res = s.write(res)
	s.checkStored(res)
	s.expectUpsert(w, res)
	s.equalLists("List of the largest resource", s.list(things, home, ""), []*resourcepb.Resource{res})

	for _, larger := range []*resourcepb.Resource{withSize(clone(res), s.h.MaxSize+1), withSize(newThing("larger"), s.h.MaxSize+1), withSize(newThing("huge"), 3*s.h.MaxSize)} {
		_, err := s.b.WriteCAS(s.ctx, larger)
		s.wantError("WriteCAS of a resource that is too large", err, storage.ErrTooLarge)
		for _, size := range []int{sizeOf(larger), s.h.MaxSize} {
			if !strings.Contains(err.Error(), strconv.Itoa(size)) {
				s.Errorf("the error does not name the size %d: %v", size, err)
			}
		}
	}
	s.checkStored(res)
	s.checkAbsent(thingID("larger"))
	s.checkAbsent(thingID("huge"))
	s.delete(res)
	s.expectDelete(w, res)
}

// A badID makes an id invalid and names the word for it in the error.
type badID struct {
	name, word string
	spoil      func(id *resourcepb.ID)
}

func badIDs() []badID {
	bad := []badID{
		{"no type", "type", func(id *resourcepb.ID) { id.Type = nil }},
		{"no tenancy", "tenancy", func(id *resourcepb.ID) { id.Tenancy = nil }},
		{"no group", "group", func(id *resourcepb.ID) { id.Type.Group = "" }},
		{"no kind", "kind", func(id *resourcepb.ID) { id.Type.Kind = "" }},
		{"no name", "name", func(id *resourcepb.ID) { id.Name = "" }},
		{"a group version that is not UTF-8", "version", func(id *resourcepb.ID) { id.Type.GroupVersion = "v\xff" }},
	}
	parts := []struct {
		word string
		of   func(id *resourcepb.ID) *string
	}{
		{"group", func(id *resourcepb.ID) *string { return &id.Type.Group }},
		{"kind", func(id *resourcepb.ID) *string { return &id.Type.Kind }},
		{"partition", func(id *resourcepb.ID) *string { return &id.Tenancy.Partition }},
		{"namespace", func(id *resourcepb.ID) *string { return &id.Tenancy.Namespace }},
		{"name", func(id *resourcepb.ID) *string { return &id.Name }},
		{"uid", func(id *resourcepb.ID) *string { return &id.Uid }},
	}
	for _, p := range parts {
		for what, text := range map[string]string{
			"NUL":          "a\x00b",
			"NUL alone":    "\x00",
			"bad UTF-8":    "a\xffb",
			"half a rune":  "é"[:1],
			"a surrogate":  "\xed\xa0\x80",
			"256 bytes":    strings.Repeat("x", 256),
			"128 runes":    strings.Repeat("é", 128),
			"far too long": strings.Repeat("x", 100_000),
		} {
			bad = append(bad, badID{what + " in the " + p.word, p.word, func(id *resourcepb.ID) { *p.of(id) = text }})
		}
		if p.word != "uid" {
			bad = append(bad, badID{"a wildcard for the " + p.word, p.word, func(id *resourcepb.ID) { *p.of(id) = storage.Wildcard }})
		}
	}
	return bad
}

// failsInvalid demands ErrInvalid with a text that names the field.
func failsInvalid(s *suite, what, word string, err error) {
	s.Helper()
	s.wantError(what, err, storage.ErrInvalid)
	if !strings.Contains(strings.ToLower(err.Error()), word) {
		s.Errorf("%s: the error does not name the %s: %v", what, word, err)
	}
}

func limitIDs(s *suite) {
	for _, bad := range append(badIDs(), badID{"no id", "nil", nil}) {
		var id *resourcepb.ID
		if bad.spoil != nil {
			id = thingID("a")
			bad.spoil(id)
		}
		_, err := s.b.Read(s.ctx, eventual, id)
		failsInvalid(s, "Read with "+bad.name, bad.word, err)
		_, err = s.b.Read(s.ctx, strong, id)
		failsInvalid(s, "strong Read with "+bad.name, bad.word, err)
		failsInvalid(s, "DeleteCAS with "+bad.name, bad.word, s.b.DeleteCAS(s.ctx, id, "v"))
		_, err = s.b.OwnerReferences(s.ctx, id)
		failsInvalid(s, "OwnerReferences with "+bad.name, bad.word, err)
		_, err = s.b.WriteCAS(s.ctx, newResource(id))
		failsInvalid(s, "WriteCAS with "+bad.name, bad.word, err)
		if id != nil {
			_, err = s.b.WriteCAS(s.ctx, newChild("a", id))
			failsInvalid(s, "WriteCAS with an owner with "+bad.name, bad.word, err)
		}
		if transactor, ok := storage.As[storage.Transactor](s.b); ok && id != nil {
			for _, op := range []storage.Op{{Write: newResource(id)}, {Delete: id, Version: "v"}, {Check: id, Version: "v"}, {Check: id}} {
				_, err := transactor.Commit(s.ctx, []storage.Op{op})
				failsInvalid(s, "Commit with "+bad.name, bad.word, err)
			}
		}
	}
	s.equalLists("List after invalid calls", s.list(anything, anywhere, ""), nil)
}

func limitResources(s *suite) {
	for _, bad := range []struct {
		name, word string
		spoil      func(res *resourcepb.Resource)
	}{
		{"no uid", "uid", func(res *resourcepb.Resource) { res.Id.Uid = "" }},
		{"an owner without a uid", "owner", func(res *resourcepb.Resource) { res.Owner = withUid(thingID("o"), "") }},
		{"an owner without a name", "owner", func(res *resourcepb.Resource) { res.Owner = thingID("") }},
		{"an empty owner", "owner", func(res *resourcepb.Resource) { res.Owner = &resourcepb.ID{} }},
		{"a generation that is not UTF-8", "", func(res *resourcepb.Resource) { res.Generation = "\xff" }},
		{"a metadata key that is not UTF-8", "", func(res *resourcepb.Resource) { res.Metadata = map[string]string{"\xff": "v"} }},
		{"a metadata value that is not UTF-8", "", func(res *resourcepb.Resource) { res.Metadata = map[string]string{"k": "\xff"} }},
		{"a status key that is not UTF-8", "", func(res *resourcepb.Resource) { res.Status = map[string]*resourcepb.Status{"\xff": {}} }},
		{"malformed unknown fields", "unknown", func(res *resourcepb.Resource) { res.Id.Tenancy.ProtoReflect().SetUnknown([]byte{0xff}) }},
		{"another id in its unknown fields", "unknown", func(res *resourcepb.Resource) {
			other, err := proto.Marshal(newThing("b"))
			if err != nil {
				s.Fatal(err)
			}
			res.ProtoReflect().SetUnknown(other)
		}},
		{"a type URL that is not UTF-8", "", func(res *resourcepb.Resource) { res.Data.TypeUrl = "\xff" }},
		{"a time to live of 0", "ttl", func(res *resourcepb.Resource) { res.Ttl = &durationpb.Duration{} }},
		{"a negative time to live", "ttl", func(res *resourcepb.Resource) { res.Ttl = &durationpb.Duration{Nanos: -1} }},
		{"a time to live of 11 years", "ttl", func(res *resourcepb.Resource) { res.Ttl = durationpb.New(11 * 365 * 24 * time.Hour) }},
		{"a malformed time to live", "ttl", func(res *resourcepb.Resource) { res.Ttl = &durationpb.Duration{Seconds: 1, Nanos: -1} }},
	} {
		res := newThing("a")
		bad.spoil(res)
		_, err := s.b.WriteCAS(s.ctx, res)
		failsInvalid(s, "WriteCAS with "+bad.name, bad.word, err)
	}
	_, err := s.b.WriteCAS(s.ctx, nil)
	s.wantError("WriteCAS of nil", err, storage.ErrInvalid)
	_, err = s.b.WriteCAS(s.ctx, &resourcepb.Resource{})
	s.wantError("WriteCAS of an empty resource", err, storage.ErrInvalid)
	s.equalLists("List after invalid writes", s.list(anything, anywhere, ""), nil)
}

func limitFilters(s *suite) {
	long := strings.Repeat("x", 256)
	w := s.watchAll()
	for _, bad := range []struct {
		name string
		f    filter
	}{
		{"no tenancy", filter{things, nil, ""}},
		{"no group", newFilter("", "K", "p", "n", "")},
		{"no kind", newFilter("g", "", "p", "n", "")},
		{"no type", newFilter("", "", "p", "n", "")},
		{"all groups but one kind", newFilter("*", "K", "*", "*", "")},
		{"all groups and no kind", newFilter("*", "", "*", "*", "")},
		{"a group that is not UTF-8", newFilter("\xff", "K", "p", "n", "")},
		{"a kind with NUL", newFilter("g", "K\x00", "p", "n", "")},
		{"a partition that is not UTF-8", newFilter("g", "K", "\xff", "n", "")},
		{"a namespace with NUL", newFilter("g", "K", "p", "\x00", "")},
		{"a prefix that is not UTF-8", newFilter("g", "K", "p", "n", "a\xff")},
		{"a prefix that ends inside a character", newFilter("g", "K", "p", "n", "é"[:1])},
		{"a prefix with NUL", newFilter("g", "K", "p", "n", "a\x00")},
		{"a group of 256 bytes", newFilter(long, "K", "p", "n", "")},
		{"a kind of 256 bytes", newFilter("g", long, "p", "n", "")},
		{"a partition of 256 bytes", newFilter("g", "K", long, "n", "")},
		{"a namespace of 256 bytes", newFilter("g", "K", "p", long, "")},
	} {
		f := bad.f
		for _, consistency := range consistencies {
			_, err := s.b.List(s.ctx, consistency, f.typ, f.tenancy, f.prefix)
			s.wantError("List with "+bad.name, err, storage.ErrInvalid)
		}
		_, err := s.b.WatchList(s.ctx, f.typ, f.tenancy, f.prefix)
		s.wantError("WatchList with "+bad.name, err, storage.ErrInvalid)
		if pager, ok := storage.As[storage.Pager](s.b); ok {
			_, err := pager.ListPage(s.ctx, f.typ, f.tenancy, f.prefix, storage.ListOptions{})
			s.wantError("ListPage with "+bad.name, err, storage.ErrInvalid)
		}
		if resumer, ok := storage.As[storage.Resumer](s.b); ok {
			_, err := resumer.WatchFrom(s.ctx, f.typ, f.tenancy, f.prefix, w.Cursor())
			s.wantError("WatchFrom with "+bad.name, err, storage.ErrInvalid)
		}
	}
}

func limitConsistency(s *suite) {
	stored := s.create("a")
	for _, consistency := range []storage.ReadConsistency{-1, 2, 77} {
		_, err := s.b.Read(s.ctx, consistency, stored.Id)
		s.wantError("Read with an unknown consistency", err, storage.ErrInvalid)
		_, err = s.b.List(s.ctx, consistency, things, home, "")
		s.wantError("List with an unknown consistency", err, storage.ErrInvalid)
		if pager, ok := storage.As[storage.Pager](s.b); ok {
			_, err = pager.ListPage(s.ctx, things, home, "", storage.ListOptions{Consistency: consistency})
			s.wantError("ListPage with an unknown consistency", err, storage.ErrInvalid)
		}
	}
}
