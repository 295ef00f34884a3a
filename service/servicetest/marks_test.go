package servicetest

import (
	"google.golang.org/grpc/codes"

	"github.com/ashlar-dev/storage/resourcepb"
)

var markCases = topic{"Marks", []testCase{
	{name: "Forbidden", rules: []int{15}, run: marksForbidden},
	{name: "LastFinalizerDeletes", rules: []int{15}, run: marksLast},
	{name: "MarkedByWrite", rules: []int{15}, run: marksByWrite},
	{name: "NoFinalizers", rules: []int{15}, run: marksNone},
}}

const (
	stamp      = "deletionTimestamp"
	finalizers = "finalizers"
	someTime   = "2026-01-02T15:04:05Z"
)

func marksForbidden(s *suite) {
	s.write(with(newThing("a", "content"), finalizers, "one two", "key", "value"))
	s.delete(idOf(thing, "a"))
	res := s.read(idOf(thing, "a"))
	if res.GetMetadata()[stamp] == "" {
		s.Fatalf("Delete of a resource with finalizers leaves %s", text(res))
	}
	versioned := func(change func(*resourcepb.Resource)) func(*suite) error { return writes(but(res, change)) }
	blanket := func(change func(*resourcepb.Resource)) func(*suite) error {
		return writes(but(res, func(r *resourcepb.Resource) { r.Version = ""; change(r) }))
	}
	noneLess := exactly("expected at least one finalizer to be removed")
	for kind, changed := range map[string]func(func(*resourcepb.Resource)) func(*suite) error{"at a version": versioned,
		"whatever the version": blanket} {
		s.refuse([]row{
			{"no change, " + kind, changed(func(*resourcepb.Resource) {}), codes.InvalidArgument, noneLess},
			{"other data, " + kind, changed(func(r *resourcepb.Resource) { r.Data = payload("other") }), codes.InvalidArgument, "."},
			{"other data beside a finalizer, " + kind, changed(func(r *resourcepb.Resource) {
				r.Data, r.Metadata[finalizers] = payload("other"), "one"
			}), codes.InvalidArgument, "."},
			{"other metadata, " + kind, changed(func(r *resourcepb.Resource) { r.Metadata["key"] = "other" }), codes.InvalidArgument, "."},
			{"other metadata beside a finalizer, " + kind, changed(func(r *resourcepb.Resource) {
				r.Metadata["key"], r.Metadata[finalizers] = "other", "one"
			}), codes.InvalidArgument, "."},
			{"one finalizer more, " + kind, changed(func(r *resourcepb.Resource) { r.Metadata[finalizers] = "one two three" }),
				codes.InvalidArgument, noneLess},
			{"one finalizer for another, " + kind, changed(func(r *resourcepb.Resource) { r.Metadata[finalizers] = "one three" }),
				codes.InvalidArgument, noneLess},
			{"one finalizer for two, " + kind, changed(func(r *resourcepb.Resource) { r.Metadata[finalizers] = "three" }), codes.InvalidArgument,
				noneLess},
			{"the same finalizers in other words, " + kind, changed(func(r *resourcepb.Resource) { r.Metadata[finalizers] = " two  one two " }),
				codes.InvalidArgument, noneLess},
			{"another time, " + kind, changed(func(r *resourcepb.Resource) { r.Metadata[stamp] = someTime }), codes.InvalidArgument, stamp},
			{"an empty time, " + kind, changed(func(r *resourcepb.Resource) { r.Metadata[stamp] = "" }), codes.InvalidArgument, stamp},
		})
	}
	s.refuse([]row{
		{"no mark at a version", versioned(func(r *resourcepb.Resource) { delete(r.Metadata, stamp) }), codes.InvalidArgument, stamp},
		{"no mark beside a finalizer at a version", versioned(func(r *resourcepb.Resource) {
			delete(r.Metadata, stamp)
			r.Metadata[finalizers] = "one"
		}), codes.InvalidArgument, stamp},
		{"a write without the mark", writes(newThing("a", "content")), codes.InvalidArgument, "."},
	})
	s.untouched("Delete of a marked resource", func() { s.delete(idOf(thing, "a")) })
	if st := s.writeStatus(statusOf(res, "key", "message")); st.GetStatus()["key"] == nil {
		s.Error("a marked resource rejects a status")
	}
	now := s.write(with(but(res, func(r *resourcepb.Resource) { r.Version = "" }), finalizers, "two"))
	if now.GetMetadata()[finalizers] != "two" || now.GetMetadata()[stamp] != res.GetMetadata()[stamp] || now.GetMetadata()["key"] != "value" {
		s.Errorf("after one finalizer is removed, the metadata is %v", now.GetMetadata())
	}
}

func marksLast(s *suite) {
	w := s.watch(&resourcepb.WatchListRequest{Type: thing})
	w.snapshot()
	for name, last := range map[string]func(*resourcepb.Resource){
		"emptied":  func(r *resourcepb.Resource) { r.Metadata[finalizers] = "" },
		"blank":    func(r *resourcepb.Resource) { r.Metadata[finalizers] = "  " },
		"missing":  func(r *resourcepb.Resource) { delete(r.Metadata, finalizers) },
		"all-once": func(r *resourcepb.Resource) { r.Metadata[finalizers] = "" },
	} {
		s.write(with(newThing(name, "content"), finalizers, "two one"))
		w.upsert(name)
		s.delete(idOf(thing, name))
		res := w.upsert(name)
		s.same("Read of a marked resource", s.read(idOf(thing, name)), res)
		if name != "all-once" {
			s.write(but(res, func(r *resourcepb.Resource) { r.Metadata[finalizers] = "one" }))
			res = w.upsert(name)
		}
		stones := len(s.list(tombstones))
		s.write(but(res, last))
		if gone := w.deleted(name); gone.GetId().GetUid() != res.GetId().GetUid() {
			s.Errorf("%s: another resource was deleted: %s", name, text(gone))
		}
		if s.stored(res.GetId()) {
			s.Errorf("%s: the last finalizer is removed, but the resource is still stored", name)
		}
		if n := len(s.list(tombstones)) - stones; n != 1 {
			s.Errorf("%s: the deletion left %d tombstones, expected 1", name, n)
		}
	}
	// A resource without a mark is not deleted with its last finalizer.
	res := s.write(with(newThing("unmarked", "content"), finalizers, "one"))
	s.write(with(res, finalizers, ""))
	if !s.stored(res.GetId()) {
		s.Error("a resource that was not marked is deleted with its last finalizer")
	}
}

func marksByWrite(s *suite) {
	res := s.write(with(newThing("a", "content"), finalizers, "one", "key", "value"))
	s.refuse([]row{
		{"a mark that is not a time", writes(with(res, stamp, "now")), codes.InvalidArgument, stamp},
		{"a mark that is empty", writes(with(res, stamp, "")), codes.InvalidArgument, stamp},
		{"a mark beside other data", writes(but(with(res, stamp, someTime), func(r *resourcepb.Resource) { r.Data = payload("other") })),
			codes.InvalidArgument, "."},
		{"a mark beside other metadata", writes(with(res, stamp, someTime, "key", "other")), codes.InvalidArgument, "."},
		{"a mark beside fewer finalizers", writes(with(res, stamp, someTime, finalizers, "")), codes.InvalidArgument, "."},
	})
	marked := s.write(with(res, stamp, someTime))
	if marked.GetMetadata()[stamp] != someTime {
		s.Errorf("the mark is %q", marked.GetMetadata()[stamp])
	}
	s.untouched("Delete of a marked resource", func() { s.delete(res.GetId()) })
	s.write(with(newThing("a", "content"), finalizers, "", "key", "value")) // the write keeps the mark
	if s.stored(res.GetId()) {
		s.Error("the last finalizer is removed, but the resource is still stored")
	}
}

// marksNone marks a resource without finalizers: it can be deleted, and nothing else.
func marksNone(s *suite) {
	res := s.write(newThing("a", "content"))
	marked := s.write(with(res, stamp, someTime))
	s.refuse([]row{
		{"other data", writes(but(marked, func(r *resourcepb.Resource) { r.Data = payload("other") })), codes.InvalidArgument, "."},
		{"no change", writes(marked), codes.InvalidArgument, "."},
		{"a finalizer", writes(with(marked, finalizers, "one")), codes.InvalidArgument, "."},
	})
	s.delete(res.GetId())
	if s.stored(res.GetId()) {
		s.Error("a marked resource without finalizers cannot be deleted")
	}
}
