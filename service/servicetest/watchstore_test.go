package servicetest

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/resourcepb"
)

var selectionCases = topic{"Selection", []testCase{
	{name: "Refused", rules: []int{1}, run: selectionRefused},
	{name: "Actions", rules: []int{26}, run: selectionActions},
	{name: "Selectors", rules: []int{26}, run: selectionSelectors},
	{name: "Resume", rules: []int{26}, run: selectionResume},
	{name: "Access", rules: []int{3, 26}, run: selectionAccess},
}}

// selected is an open stream of WatchStore.
type selected struct {
	s    *suite
	recv func() (*resourcepb.StoreEvent, error)
}

// selectedBy opens a stream, which ends with the case. If the store keeps no history, it checks that the server reports that, and returns
// false.
func (s *suite) selectedBy(ctx context.Context, req *resourcepb.WatchStoreRequest) (*selected, bool) {
	s.Helper()
	ctx, cancel := context.WithTimeout(ctx, s.h.Timeout)
	s.Cleanup(cancel)
	stream, err := s.WatchStore(ctx, req)
	var first *resourcepb.StoreEvent
	if !s.recalls() {
		if err == nil {
			_, err = stream.Recv()
		}
		s.fails("WatchStore of a store that keeps no history", err, codes.Unimplemented, "keeps no history")
		return nil, false
	}
	s.succeeds("WatchStore", err)
	w := &selected{s: s, recv: stream.Recv}
	switch {
	case req.GetSnapshot(): // the snapshot is taken with its first event
		first = w.next()
		w.recv = func() (ev *resourcepb.StoreEvent, err error) {
			if ev, first = first, nil; ev == nil {
				ev, err = stream.Recv()
			}
			return ev, err
		}
	case req.GetCursor() == "":
		if first = w.next(); first.GetAction() != resourcepb.Action_ACTION_START || first.GetCursor() == "" {
			s.Fatalf("the stream begins with %s", text(first))
		}
	}
	return w, true
}

// recalls reports whether the store's watches provide the state before a change.
func (s *suite) recalls() bool {
	s.Helper()
	probe, err := s.store.WatchList(s.ctx, storage.UnversionedTypeFrom(thing), anywhere, "")
	s.succeeds("watch the store", err)
	defer probe.Close()
	_, ok := probe.(history.Recaller)
	return ok
}

func (w *selected) next() *resourcepb.StoreEvent {
	w.s.Helper()
	ev, err := w.recv()
	if err != nil {
		w.s.Fatalf("the stream ended: %v", err)
	}
	return ev
}

// shows checks events in order, as "action name before→now" with the payloads.
func (w *selected) shows(what string, want ...string) (last *resourcepb.StoreEvent) {
	w.s.Helper()
	for i, wanted := range want {
		last = w.next()
		if got := brief(last); got != wanted {
			w.s.Errorf("%s: event %d is %q, expected %q", what, i, got, wanted)
		}
	}
	return last
}

// brief formats an event in short.
func brief(ev *resourcepb.StoreEvent) string {
	id := ev.GetNow().GetId()
	if id == nil {
		id = ev.GetBefore().GetId()
	}
	content := func(res *resourcepb.Resource) string {
		text := &wrapperspb.StringValue{}
		if res.GetData() != nil && res.GetData().UnmarshalTo(text) != nil {
			return "?"
		}
		return text.GetValue()
	}
	s := fmt.Sprintf("%s %s %s→%s", ev.GetAction(), id.GetName(), content(ev.GetBefore()), content(ev.GetNow()))
	if ev.GetMore() {
		s += " more"
	}
	return s
}

// raw returns a resource of a type with a text.
func raw(t *resourcepb.Type, name, content string) *resourcepb.Resource {
	return &resourcepb.Resource{Id: idOf(t, name), Data: payload(content)}
}

func entry(t *resourcepb.Type, sel *resourcepb.Selector, actions ...resourcepb.Action) *resourcepb.WatchEntry {
	return &resourcepb.WatchEntry{Type: t, Actions: actions, Selector: sel}
}

func named(name string) *resourcepb.Selector {
	return &resourcepb.Selector{By: &resourcepb.Selector_Name{Name: name}}
}

func selectionRefused(s *suite) {
	watch := func(req *resourcepb.WatchStoreRequest) func(*suite) error {
		return func(s *suite) error {
			ctx, cancel := context.WithTimeout(s.ctx, s.h.Timeout)
			defer cancel()
			stream, err := s.WatchStore(ctx, req)
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		}
	}
	one := func(e *resourcepb.WatchEntry) func(*suite) error {
		return watch(&resourcepb.WatchStoreRequest{Entries: []*resourcepb.WatchEntry{e}})
	}
	deep := named("a")
	for range 40 {
		deep = &resourcepb.Selector{By: &resourcepb.Selector_Not{Not: deep}}
	}
	wide := &resourcepb.Selectors{}
	for range 256 {
		wide.Of = append(wide.Of, named("a"))
	}
	entries := make([]*resourcepb.WatchEntry, 65)
	for i := range entries {
		entries[i] = entry(thing, nil)
	}
	again := slices.Repeat([]resourcepb.Action{resourcepb.Action_ACTION_DELETE}, 1<<16)
	s.refuse([]row{
		{"WatchStore without entries", watch(&resourcepb.WatchStoreRequest{}), codes.InvalidArgument, "^entries are required"},
		{"WatchStore without a type", one(&resourcepb.WatchEntry{}), codes.InvalidArgument, `^entries\[0\]: type is required`},
		{"WatchStore of an unregistered type", one(entry(unregistered, nil)), codes.InvalidArgument, "not registered"},
		{"WatchStore of no action", one(entry(thing, nil, resourcepb.Action_ACTION_EXISTS)), codes.InvalidArgument, "actions invalid"},
		{"WatchStore of the same actions again and again", one(entry(thing, nil, again...)), codes.InvalidArgument, "actions invalid"},
		{"WatchStore by too many entries", watch(&resourcepb.WatchStoreRequest{Entries: entries}), codes.InvalidArgument, "^entries invalid"},
		{"WatchStore by too many selectors", one(entry(thing, &resourcepb.Selector{By: &resourcepb.Selector_And{And: wide}})),
			codes.InvalidArgument, "selector invalid"},
		{"WatchStore by an empty selector", one(entry(thing, &resourcepb.Selector{})), codes.InvalidArgument, "selector invalid"},
		{"WatchStore by a deep selector", one(entry(thing, deep)), codes.InvalidArgument, "selector invalid"},
		{"WatchStore of a snapshot after a cursor", watch(&resourcepb.WatchStoreRequest{
			Entries: []*resourcepb.WatchEntry{entry(thing, nil)}, Cursor: "x", Snapshot: true,
		}), codes.InvalidArgument, "^snapshot invalid"},
		{"WatchStore by nobody", func(s *suite) error {
			stream, err := s.WatchStore(s.as(nobody), &resourcepb.WatchStoreRequest{Entries: []*resourcepb.WatchEntry{entry(thing, nil)}})
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		}, codes.PermissionDenied, "nobody may not"},
	})
}

func selectionActions(s *suite) {
	s.write(raw(thing, "there", "0"))
	req := func(change func(*resourcepb.WatchStoreRequest)) *resourcepb.WatchStoreRequest {
		return but(&resourcepb.WatchStoreRequest{Entries: []*resourcepb.WatchEntry{entry(thing, nil)}}, change)
	}
	all, ok := s.selectedBy(s.ctx, req(func(*resourcepb.WatchStoreRequest) {}))
	if !ok {
		return
	}
	snapshot, _ := s.selectedBy(s.ctx, req(func(q *resourcepb.WatchStoreRequest) { q.Snapshot = true }))
	deletions, _ := s.selectedBy(s.ctx, req(func(q *resourcepb.WatchStoreRequest) {
		q.Entries = []*resourcepb.WatchEntry{entry(thing, nil, resourcepb.Action_ACTION_DELETE), entry(site, nil, resourcepb.Action_ACTION_CREATE)}
	}))
	s.write(raw(thing, "a", "1"))
	s.write(raw(thing, "a", "2"))
	s.write(raw(secret, "a", "not requested"))
	s.delete(idOf(thing, "a"))
	s.delete(idOf(thing, "there"))
	all.shows("all actions", "ACTION_CREATE a →1", "ACTION_UPDATE a 1→2", "ACTION_DELETE a 2→", "ACTION_DELETE there 0→")
	snapshot.shows("a snapshot first", "ACTION_EXISTS there →0", "ACTION_START  →", "ACTION_CREATE a →1", "ACTION_UPDATE a 1→2")
	deletions.shows("deletions only", "ACTION_DELETE a 2→", "ACTION_DELETE there 0→")
}

func selectionSelectors(s *suite) {
	label := func(key, value string) *resourcepb.Selector {
		return &resourcepb.Selector{By: &resourcepb.Selector_Metadata{Metadata: &resourcepb.MetadataEntry{Key: key, Value: proto.String(value)}}}
	}
	owner := s.write(raw(thing, "owner", "0"))
	red := with(raw(thing, "b-red", "1"), "color", "red")
	red.Owner = owner.GetId()
	type of = []*resourcepb.Selector
	for _, tt := range []struct {
		what string
		by   *resourcepb.Selector
		want []string
	}{
		{"a name", named("a"), []string{"ACTION_CREATE a →1"}},
		{"a prefix", &resourcepb.Selector{By: &resourcepb.Selector_NamePrefix{NamePrefix: "b"}}, []string{"ACTION_CREATE b-red →1", "ACTION_UPDATE b-red 1→2"}},
		{"an owner", &resourcepb.Selector{By: &resourcepb.Selector_Owner{Owner: owner.GetId()}}, []string{"ACTION_CREATE b-red →1", "ACTION_UPDATE b-red 1→2"}},
		{"metadata, also as they were", label("color", "red"), []string{"ACTION_CREATE b-red →1", "ACTION_UPDATE b-red 1→2"}},
		{"metadata as they are", label("color", "blue"), []string{"ACTION_UPDATE b-red 1→2"}},
		{"a key of metadata", &resourcepb.Selector{By: &resourcepb.Selector_Metadata{Metadata: &resourcepb.MetadataEntry{Key: "color"}}},
			[]string{"ACTION_CREATE b-red →1", "ACTION_UPDATE b-red 1→2"}},
		{"a tenancy", &resourcepb.Selector{By: &resourcepb.Selector_Tenancy{Tenancy: &resourcepb.Tenancy{Partition: "*", Namespace: east}}},
			[]string{"ACTION_CREATE far →1"}},
		{"two at once", &resourcepb.Selector{By: &resourcepb.Selector_And{And: &resourcepb.Selectors{Of: of{named("b-red"), label("color", "blue")}}}},
			[]string{"ACTION_UPDATE b-red 1→2"}},
		{"one of two", &resourcepb.Selector{By: &resourcepb.Selector_Or{Or: &resourcepb.Selectors{Of: of{named("a"), named("far")}}}},
			[]string{"ACTION_CREATE a →1", "ACTION_CREATE far →1"}},
		{"all but one", &resourcepb.Selector{By: &resourcepb.Selector_Not{Not: &resourcepb.Selector{By: &resourcepb.Selector_NamePrefix{NamePrefix: "b"}}}},
			[]string{"ACTION_CREATE a →1", "ACTION_CREATE far →1"}},
	} {
		w, ok := s.selectedBy(s.ctx, &resourcepb.WatchStoreRequest{Entries: []*resourcepb.WatchEntry{entry(thing, tt.by), entry(thing, named("last"))}})
		if !ok {
			return
		}
		s.write(raw(thing, "a", "1"))
		s.write(clone(red))
		s.write(with(but(clone(red), func(r *resourcepb.Resource) { r.Data = payload("2") }), "color", "blue"))
		s.write(in("", east, raw(thing, "far", "1")))
		s.write(raw(thing, "last", "1"))
		w.shows(tt.what, append(tt.want, "ACTION_CREATE last →1")...)
		for _, id := range []*resourcepb.ID{idOf(thing, "a"), idOf(thing, "b-red"), in("", east, raw(thing, "far", "")).GetId(), idOf(thing, "last")} {
			s.delete(id)
		}
	}
}

func selectionResume(s *suite) {
	req := &resourcepb.WatchStoreRequest{Entries: []*resourcepb.WatchEntry{entry(thing, nil, resourcepb.Action_ACTION_UPDATE)}, BookmarkInterval: seconds(1)}
	w, ok := s.selectedBy(s.ctx, req)
	if !ok {
		return
	}
	s.write(raw(thing, "a", "1"))
	s.write(raw(thing, "a", "2"))
	var event *resourcepb.StoreEvent
	for event = w.next(); event.GetAction() == resourcepb.Action_ACTION_PROGRESS; {
		event = w.next()
	}
	if got := brief(event); got != "ACTION_UPDATE a 1→2" || event.GetCursor() == "" {
		s.Fatalf("the first change is %s", text(event))
	}
	s.write(raw(thing, "a", "3"))
	s.delete(idOf(thing, "a"))
	progress := w.next()
	for progress.GetAction() != resourcepb.Action_ACTION_PROGRESS {
		progress = w.next()
	}
	resumed := but(clone(req), func(q *resourcepb.WatchStoreRequest) { q.Cursor, q.BookmarkInterval = event.GetCursor(), nil })
	if _, ok := storage.As[storage.Resumer](s.store); !ok {
		stream, err := s.WatchStore(s.ctx, resumed)
		if err == nil {
			_, err = stream.Recv()
		}
		s.fails("WatchStore from a cursor", err, codes.Unimplemented, "cannot resume")
		return
	}
	again, _ := s.selectedBy(s.ctx, resumed)
	again.shows("after a cursor", "ACTION_UPDATE a 2→3")
	s.write(raw(thing, "b", "1"))
	s.write(raw(thing, "b", "2"))
	again.shows("after a cursor", "ACTION_UPDATE b 1→2")
}

func selectionAccess(s *suite) {
	w, ok := s.selectedBy(s.as(reader), &resourcepb.WatchStoreRequest{Entries: []*resourcepb.WatchEntry{entry(secret, nil), entry(thing, named("last"))}})
	if !ok {
		return
	}
	chosen, _ := s.selectedBy(s.as(reader), &resourcepb.WatchStoreRequest{Entries: []*resourcepb.WatchEntry{entry(secret, &resourcepb.Selector{
		By: &resourcepb.Selector_Metadata{Metadata: &resourcepb.MetadataEntry{Key: readableBy, Value: proto.String(reader)}},
	})}})
	set := func(who, content string) {
		s.write(with(but(newOf(secret, "a"), func(r *resourcepb.Resource) { r.Data = payload(content) }), readableBy, who))
	}
	set("other", "1")
	set(reader, "2")
	set(reader, "3")
	set("other", "4")
	s.write(raw(thing, "last", "1"))
	w.shows("a resource that enters and leaves the view", "ACTION_CREATE a →2", "ACTION_UPDATE a 2→3", "ACTION_DELETE a 3→", "ACTION_CREATE last →1")
	chosen.shows("a selected resource that leaves the view", "ACTION_CREATE a →2", "ACTION_UPDATE a 2→3", "ACTION_DELETE a 3→")
}
