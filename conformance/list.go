package conformance

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

var listCases = topic{"List", []testCase{
	{name: "Filters", run: listFilters},
	{name: "Empty", run: listEmpty},
	{name: "FollowsChanges", run: listFollows},
	{name: "IsOneCut", needs: needSnapshot, run: listCut},
}}

// list lists strongly.
func (s *suite) list(typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string) []*resourcepb.Resource {
	s.Helper()
	resources, err := s.b.List(s.ctx, strong, typ, tenancy, prefix)
	s.succeeds("List", err)
	return resources
}

func newID(group, kind, partition, namespace, name string) *resourcepb.ID {
	return &resourcepb.ID{
		Uid: newUid(), Name: name,
		Type:    &resourcepb.Type{Group: group, GroupVersion: "v1", Kind: kind},
		Tenancy: &resourcepb.Tenancy{Partition: partition, Namespace: namespace},
	}
}

// A filter is what List and its kin select by.
type filter struct {
	typ     storage.UnversionedType
	tenancy *resourcepb.Tenancy
	prefix  string
}

func newFilter(group, kind, partition, namespace, prefix string) filter {
	return filter{storage.UnversionedType{Group: group, Kind: kind}, &resourcepb.Tenancy{Partition: partition, Namespace: namespace}, prefix}
}

func (f filter) String() string {
	return fmt.Sprintf("%q/%q in %q/%q, prefix %q", f.typ.Group, f.typ.Kind, f.tenancy.Partition, f.tenancy.Namespace, f.prefix)
}

// selects is the contract's words, as plainly as can be.
func (f filter) selects(id *resourcepb.ID) bool {
	unit := func(wanted, is string) bool { return wanted == storage.Wildcard || wanted == is }
	return unit(f.typ.Group, id.Type.Group) && unit(f.typ.Kind, id.Type.Kind) &&
		unit(f.tenancy.Partition, id.Tenancy.Partition) && unit(f.tenancy.Namespace, id.Tenancy.Namespace) &&
		strings.HasPrefix(id.Name, f.prefix)
}

// of returns those of all that f selects, in list order.
func (f filter) of(all []*resourcepb.Resource) []*resourcepb.Resource {
	var selected []*resourcepb.Resource
	for _, res := range all {
		if f.selects(res.Id) {
			selected = append(selected, res)
		}
	}
	inOrder(selected)
	return selected
}

// inOrder sorts by the bytes of (group, kind, partition, namespace, name). No part holds NUL, so the order of the parts is
// that of the parts joined by it.
func inOrder(resources []*resourcepb.Resource) {
	slices.SortFunc(resources, func(a, b *resourcepb.Resource) int { return strings.Compare(keyOf(a.Id), keyOf(b.Id)) })
}

// mixture fills the store with resources of several types and tenancies, whose parts are chosen to be confused: with a
// pattern, with the beginning of another, with another split of the same text.
func createMixture(s *suite) []*resourcepb.Resource {
	s.Helper()
	var all []*resourcepb.Resource
	for _, k := range [][5]string{
		{"g", "K", "p", "n", "a"},
		{"g", "K", "p", "n", "ab"},
		{"g", "K", "p", "n", "a%"},
		{"g", "K", "p", "n", "a*"},
		{"g", "K", "p", "n", "a_c"},
		{"g", "K", "p", "n", "abc"},
		{"g", "K", "p", "n", "A"},
		{"g", "K", "p", "n", "é"},
		{"g", "K", "p", "n", "z"},
		{"g", "K", "p", "n2", "a"},
		{"g", "K", "p", "", "a"},
		{"g", "K", "", "n", "a"},
		{"g", "K", "", "", "a"},
		{"g", "K", "", "", "ab"},
		{"g", "K", "p2", "n", "a"},
		{"g", "K", "P", "n", "a"},
		{"g", "K", "pn", "", "a"},
		{"g", "K2", "p", "n", "a"},
		{"g", "Kp", "", "n", "a"},
		{"g", "k", "p", "n", "a"},
		{"g2", "K", "p", "n", "a"},
		{"g.io", "K", "p", "n", "ab"},
		{"G", "K", "p", "n", "a"},
		{"gK", "p", "n", "a", "a"},
	} {
		all = append(all, s.write(newResource(newID(k[0], k[1], k[2], k[3], k[4]))))
	}
	return all
}

// filters is one of every kind.
func filters() []filter {
	return []filter{
		newFilter("g", "K", "p", "n", ""),
		newFilter("g", "K", "p", "n", "a"),
		newFilter("g", "K", "p", "n", "ab"),
		newFilter("g", "K", "p", "n", "abc"),
		newFilter("g", "K", "p", "n", "abcd"),
		newFilter("g", "K", "p", "n", "a%"),
		newFilter("g", "K", "p", "n", "a*"),
		newFilter("g", "K", "p", "n", "a_"),
		newFilter("g", "K", "p", "n", "*"),
		newFilter("g", "K", "p", "n", "%"),
		newFilter("g", "K", "p", "n", "\xc3\xa9"),
		newFilter("g", "K", "p", "*", ""),
		newFilter("g", "K", "*", "n", ""),
		newFilter("g", "K", "*", "*", ""),
		newFilter("g", "K", "*", "*", "ab"),
		newFilter("g", "K", "*", "n", "a"),
		newFilter("g", "K", "p", "", ""),
		newFilter("g", "K", "", "n", ""),
		newFilter("g", "K", "", "", ""),
		newFilter("g", "K", "", "*", "a"),
		newFilter("g", "K", "*", "", ""),
		newFilter("g", "*", "p", "n", ""),
		newFilter("g", "*", "p", "n", "a"),
		newFilter("g", "*", "*", "*", ""),
		newFilter("g", "*", "", "", ""),
		newFilter("*", "*", "p", "n", ""),
		newFilter("*", "*", "p", "n", "ab"),
		newFilter("*", "*", "p", "*", "a"),
		newFilter("*", "*", "", "*", ""),
		newFilter("*", "*", "*", "", ""),
		newFilter("*", "*", "*", "*", ""),
		newFilter("*", "*", "*", "*", "ab"),
		newFilter("g", "Unknown", "*", "*", ""),
		newFilter("unknown", "K", "*", "*", ""),
		newFilter("unknown", "*", "*", "*", ""),
		newFilter("g", "K", "p", "unknown", ""),
	}
}

func listFilters(s *suite) {
	all := createMixture(s)
	s.eventually("an eventual List shows everything", func() error {
		list, err := s.b.List(s.ctx, eventual, anything, anywhere, "")
		if err == nil {
			err = compareLists(list, newFilter("*", "*", "*", "*", "").of(all))
		}
		return err
	})
	pager, paged := storage.As[storage.Pager](s.b)
	for _, f := range filters() {
		want := f.of(all)
		for _, consistency := range consistencies {
			got, err := s.b.List(s.ctx, consistency, f.typ, f.tenancy, f.prefix)
			s.succeeds("List of "+f.String(), err)
			s.sameList(consistency.String()+" List of "+f.String(), got, want)
		}
		w := s.watch(f.typ, f.tenancy, f.prefix)
		s.sameList("the snapshot of "+f.String(), s.snapshot(w), want)
		w.Close()
		if paged {
			got, _ := s.pages(pager, f, 3)
			s.sameList("pages of "+f.String(), got, want)
		}
	}
}

func listEmpty(s *suite) {
	for _, f := range []filter{newFilter("g", "K", "p", "n", ""), newFilter("*", "*", "*", "*", "")} {
		for _, consistency := range consistencies {
			got, err := s.b.List(s.ctx, consistency, f.typ, f.tenancy, f.prefix)
			s.succeeds("List of an empty store", err)
			if got != nil {
				s.Fatalf("List of an empty store: got %d resources in a slice that is not nil, want nil", len(got))
			}
		}
	}
}

func listFollows(s *suite) {
	a, b := s.create("a"), s.create("b")
	s.sameList("List after two writes", s.list(things, home, ""), []*resourcepb.Resource{a, b})
	a = s.update(a)
	s.sameList("List after an update", s.list(things, home, ""), []*resourcepb.Resource{a, b})
	s.delete(a)
	s.sameList("List after a deletion", s.list(things, home, ""), []*resourcepb.Resource{b})
	a = s.create("a")
	s.sameList("List after a second creation", s.list(things, home, ""), []*resourcepb.Resource{a, b})
	s.sameList("List of a prefix", s.list(things, home, "b"), []*resourcepb.Resource{b})
}

// listCut moves a token from name to name, in the order of the list and against it: a list that is one cut through the store
// shows exactly one holder, or two, as the writer creates before it deletes.
func listCut(s *suite) {
	const names = 12
	stop := make(chan struct{})
	writing := make(chan error, 1)
	var moves atomic.Int64
	first := s.create("name-00")
	go func() {
		held := first
		for i := 1; ; i++ {
			select {
			case <-stop:
				writing <- nil
				return
			default:
			}
			next, err := s.b.WriteCAS(s.ctx, newThing(fmt.Sprintf("name-%02d", i*5%names)))
			if err == nil {
				err = s.b.DeleteCAS(s.ctx, held.Id, held.Version)
			}
			if err != nil {
				writing <- fmt.Errorf("moving the token: %w", err)
				return
			}
			held = next
			moves.Add(1)
			runtime.Gosched() // or the lists of a fast store on one processor would each see a whole time slice of moves
		}
	}()
	var err error
	for i := 0; err == nil && s.ctx.Err() == nil && (i < s.scale(80) || moves.Load() < int64(s.scale(80))); i++ {
		var got []*resourcepb.Resource
		got, err = s.b.List(s.ctx, consistencies[i%2], things, home, "")
		if err == nil && (len(got) < 1 || len(got) > 2) {
			err = fmt.Errorf("List shows %d holders of a token that always has one or two", len(got))
		}
		if len(writing) > 0 {
			break
		}
	}
	close(stop)
	s.succeeds("the writer", s.result("the writer", writing))
	s.succeeds("List", err)
}
