package conformance

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

var pagingCases = topic{"Paging", []testCase{
	{name: "Limits", needs: needPager, run: pagingLimits},
	{name: "OneCut", needs: needPager | needSnapshot, run: pagingCut},
	{name: "UnchangedExactlyOnce", needs: needPager, run: pagingUnchanged},
	{name: "Token", needs: needPager, run: pagingToken},
	{name: "Large", needs: needPager, run: pagingLarge},
	{name: "Cursor", needs: needPager | needResumer, run: pagingCursor},
}}

func pagingLimits(s *suite) {
	pager, all := s.pager(), createMany(s, 23)
	for _, limit := range []int{1, 2, 7, 22, 23, 24, 1000, 1 << 30, 0} {
		got, _ := s.pages(pager, homeThings, limit)
		s.equalLists(fmt.Sprintf("pages of %d", limit), got, all)
	}
	// The limit may change on the way.
	page := s.page(pager, homeThings, storage.ListOptions{Consistency: strong, Limit: 3})
	got, _ := s.pagesFrom(pager, homeThings, page, 5)
	s.equalLists("pages of 3 and 5", got, all)

	none, _ := s.pages(pager, newFilter("g", "K", "p", "n", ""), 5)
	s.equalLists("pages of nothing", none, nil)
	_, err := pager.ListPage(s.ctx, things, home, "", storage.ListOptions{Limit: -1})
	s.wantError("ListPage with a negative limit", err, storage.ErrInvalid)
	_, err = pager.ListPage(s.ctx, things, home, "", storage.ListOptions{Limit: -1 << 40})
	s.wantError("ListPage with a negative limit", err, storage.ErrInvalid)
}

// pagingCut makes changes between the first page and the second. All pages show the state of the first.
func pagingCut(s *suite) {
	pager, all := s.pager(), createMany(s, 12)
	first := s.page(pager, homeThings, storage.ListOptions{Consistency: strong, Limit: 4})
	changeAround(s, all)
	got, _ := s.pagesFrom(pager, homeThings, first, 3)
	s.equalLists("pages with changes in between", got, all)
}

// pagingUnchanged checks the promise of listings that are no snapshot.
func pagingUnchanged(s *suite) {
	pager, all := s.pager(), createMany(s, 24)
	page := s.page(pager, homeThings, storage.ListOptions{Consistency: strong, Limit: 5})
	changeAround(s, all)
	got, _ := s.pagesFrom(pager, homeThings, page, 2)
	seen := make(map[string]int)
	for i, res := range got {
		seen[res.Version]++
		if i > 0 && keyOf(got[i-1].Id) >= keyOf(res.Id) {
			s.Fatalf("%q comes after %q", res.Id.Name, got[i-1].Id.Name)
		}
	}
	for i, res := range all {
		if i%4 >= 2 && seen[res.Version] != 1 {
			s.Fatalf("%q, which did not change, was listed %d times", res.Id.Name, seen[res.Version])
		}
	}
}

func pagingToken(s *suite) {
	pager, all := s.pager(), createMany(s, 9)
	s.write(newResource(newID("g", "K", "p", "n", "name-a")))
	first := s.page(pager, homeThings, storage.ListOptions{Consistency: strong, Limit: 2})
	for first.Continue != "" && len(first.Resources) == 0 {
		first = s.page(pager, homeThings, storage.ListOptions{Consistency: strong, Limit: 2, Continue: first.Continue})
	}
	if first.Continue == "" {
		s.Fatal("the first of several pages has no continue token")
	}
	for _, f := range []filter{
		{things, home, "name"}, {things, anywhere, ""}, {anything, home, ""}, newFilter("g", "K", "p", "n", ""),
		newFilter("conformance", "Thing", "default", "*", ""), newFilter("conformance", "Thin", "default", "default", ""),
	} {
		_, err := pager.ListPage(s.ctx, f.typ, f.tenancy, f.prefix, storage.ListOptions{Consistency: strong, Limit: 2, Continue: first.Continue})
		s.wantError("ListPage of "+f.String()+" with the token of another filter", err, storage.ErrInvalid)
	}
	t := first.Continue
	for _, token := range []string{"garbage", " ", "%", "\x00", "💥", t + "x", "x" + t, t[:len(t)/2], all[0].Version, strings.Repeat("A", 5000)} {
		_, err := pager.ListPage(s.ctx, things, home, "", storage.ListOptions{Consistency: strong, Limit: 2, Continue: token})
		s.wantError("ListPage with token "+strconv.Quote(token), err, storage.ErrInvalid)
	}
	// A caller that lost an answer repeats the call with the same token and gets the same rest, any number of times.
	for _, limit := range []int{2, 3, 1000} {
		got, _ := s.pagesFrom(pager, homeThings, first, limit)
		s.equalLists("pages after the same first page", got, all)
	}
	// Two listings at once do not disturb each other.
	a := s.page(pager, homeThings, storage.ListOptions{Consistency: strong, Limit: 3})
	b := s.page(pager, homeThings, storage.ListOptions{Consistency: strong, Limit: 4})
	gotB, _ := s.pagesFrom(pager, homeThings, b, 4)
	gotA, _ := s.pagesFrom(pager, homeThings, a, 3)
	s.equalLists("pages of one of two listings", gotA, all)
	s.equalLists("pages of the other of two listings", gotB, all)
}

// pagingLarge lists resources so large that no page should hold all of them, whatever its limit.
func pagingLarge(s *suite) {
	pager := s.pager()
	var all []*resourcepb.Resource
	for i := range 5 {
		res := newThing(strconv.Itoa(i))
		res.Data.Value = randomBytes(s.h.MaxSize / 2)
		all = append(all, s.write(res))
	}
	got, _ := s.pages(pager, homeThings, 1000)
	s.equalLists("pages of large resources", got, all)
}

// pagingCursor opens a watch from the cursor of a listing: it shows all changes after the first page, in order.
func pagingCursor(s *suite) {
	pager, all := s.pager(), createMany(s, 8)
	first := s.page(pager, homeThings, storage.ListOptions{Consistency: strong, Limit: 3})
	if first.Cursor == "" {
		s.Fatal("a page of a backend that is a storage.Resumer has no cursor")
	}
	updated := s.update(all[0])
	s.delete(all[7])
	created := s.create("new")
	want := []*resourcepb.WatchEvent{upsertEvent(updated), deleteEvent(all[7]), upsertEvent(created)}
	rest, cursor := s.pagesFrom(pager, homeThings, first, 3)
	want = append(want, upsertEvent(s.create("fence")))
	w := s.resume(cursor, homeThings)
	if s.h.ListIsNoSnapshot != "" {
		perKeyAtLeast(s, w, want...)
		return
	}
	s.equalLists("pages with changes in between", rest, all)
	expectPerKey(s, w, want...)
}

// perKeyAtLeast is expectPerKey for a watch that may bring earlier changes again.
func perKeyAtLeast(s *suite, w storage.Watch, want ...*resourcepb.WatchEvent) {
	s.Helper()
	for len(want) > 0 {
		got := s.next(w)
		want = slices.DeleteFunc(want, func(ev *resourcepb.WatchEvent) bool { return proto.Equal(ev, got) })
	}
}
