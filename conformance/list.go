package conformance

import (
	"fmt"
	"runtime"
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
			s.noError("List of "+f.String(), err)
			s.equalLists(consistency.String()+" List of "+f.String(), got, want)
		}
		w := s.watch(f.typ, f.tenancy, f.prefix)
		s.equalLists("the snapshot of "+f.String(), s.snapshot(w), want)
		w.Close()
		if paged {
			got, _ := s.pages(pager, f, 3)
			s.equalLists("pages of "+f.String(), got, want)
		}
	}
}

func listEmpty(s *suite) {
	for _, f := range []filter{newFilter("g", "K", "p", "n", ""), newFilter("*", "*", "*", "*", "")} {
		for _, consistency := range consistencies {
			got, err := s.b.List(s.ctx, consistency, f.typ, f.tenancy, f.prefix)
			s.noError("List of an empty store", err)
			if got != nil {
				s.Fatalf("List of an empty store: got %d resources in a slice that is not nil, want nil", len(got))
			}
		}
	}
}

func listFollows(s *suite) {
	a, b := s.create("a"), s.create("b")
	s.equalLists("List after two writes", s.list(things, home, ""), []*resourcepb.Resource{a, b})
	a = s.update(a)
	s.equalLists("List after an update", s.list(things, home, ""), []*resourcepb.Resource{a, b})
	s.delete(a)
	s.equalLists("List after a deletion", s.list(things, home, ""), []*resourcepb.Resource{b})
	a = s.create("a")
	s.equalLists("List after a second creation", s.list(things, home, ""), []*resourcepb.Resource{a, b})
	s.equalLists("List of a prefix", s.list(things, home, "b"), []*resourcepb.Resource{b})
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
	s.noError("the writer", s.result("the writer", writing))
	s.noError("List", err)
}
