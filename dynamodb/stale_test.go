package dynamodb_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/dynamofake"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// The fake's eventually consistent reads lag several writes. A handle that has returned a state never returns an older one, from a
// read, a list or a page, whether it knows the state from a write, a read or an event.
func TestMonotonicReads(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	b := handle(t, s)
	other := handle(t, s)
	first := fixture.Write(t, b, box("a", nil))
	gone := fixture.Write(t, b, box("gone", nil))
	second := fixture.Write(t, b, fixture.Write(t, b, first))
	fixture.Remove(t, b, gone)
	fresh := fixture.Write(t, b, box("fresh", nil))
	s.SetLag(2)

	old, err := other.Read(t.Context(), storage.EventualConsistency, first.GetId())
	if err != nil || old.GetVersion() != first.GetVersion() {
		t.Fatalf("the fake's reads are not stale: %v", err)
	}
	check := func(t *testing.T, handle string, b storage.Backend) {
		t.Helper()
		if res, err := b.Read(t.Context(), storage.EventualConsistency, first.GetId()); err != nil || res.GetVersion() != second.GetVersion() {
			t.Errorf("%s: an eventual read returned version %q, %v, expected %q", handle, res.GetVersion(), err, second.GetVersion())
		}
		if _, err := b.Read(t.Context(), storage.EventualConsistency, gone.GetId()); !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("%s: a deleted resource was read again: %v", handle, err)
		}
		if _, err := b.Read(t.Context(), storage.EventualConsistency, fresh.GetId()); err != nil {
			t.Errorf("%s: a new resource is missing: %v", handle, err)
		}
		list, err := b.List(t.Context(), storage.EventualConsistency, boxType, tenancy, "")
		if err != nil {
			t.Fatal(err)
		}
		expectVersions(t, handle+": list", list, second, fresh)
		page, err := b.(storage.Pager).ListPage(t.Context(), boxType, tenancy, "", storage.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		expectVersions(t, handle+": page", page.Resources, second, fresh)
	}
	check(t, "the writer", b)

	w := watch(t, other) // its snapshot is read strongly
	shown := afterSnapshot(t, w)
	if shown["a"] != second.GetVersion() || shown["fresh"] == "" || shown["gone"] != "" {
		t.Fatalf("the snapshot contains %v", shown)
	}
	second = fixture.Write(t, b, second)
	fresh = fixture.Write(t, b, fresh)
	fixture.Next(t, w)
	fixture.Next(t, w)
	check(t, "the watching handle", other)
}

// expectVersions checks that a list contains exactly the wanted resources, at their versions.
func expectVersions(t *testing.T, what string, list []*resourcepb.Resource, want ...*resourcepb.Resource) {
	t.Helper()
	got := map[string]string{}
	for _, res := range list {
		got[res.GetId().GetName()] = res.GetVersion()
	}
	if len(got) != len(want) {
		t.Errorf("%s: %d resources, expected %d", what, len(got), len(want))
	}
	for _, res := range want {
		if got[res.GetId().GetName()] != res.GetVersion() {
			t.Errorf("%s: %s has version %q, expected %q", what, res.GetId().GetName(), got[res.GetId().GetName()], res.GetVersion())
		}
	}
}

// A list that needs many answers of the database is monotonic in each of them.
func TestMonotonicLongList(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	b := handle(t, s)
	var want []*resourcepb.Resource
	for i := range 40 {
		res := fixture.Write(t, b, fixture.Write(t, b, box(fmt.Sprintf("box-%02d", i), nil)))
		if i%3 == 0 {
			fixture.Remove(t, b, res)
			continue
		}
		want = append(want, res)
	}
	s.SetLag(1)
	list, err := b.List(t.Context(), storage.EventualConsistency, boxType, tenancy, "")
	if err != nil {
		t.Fatal(err)
	}
	expectVersions(t, "list", list, want...)
}
