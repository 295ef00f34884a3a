package conformance

import (
	"fmt"
	"strconv"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

var listCases = topic{"Lists", []testCase{
	{name: "Large", needs: needOneCut, run: listsLarge},
}}

// largeList is the number of resources in a large list.
const largeList = 400

// listsLarge lists more resources than a database returns at once, while a writer updates the first and the last of them in turn. In a
// single cut, the first has as many updates as the last, or one more.
func listsLarge(s *suite) {
	const rounds, writers = 12, 16
	s.parallel(writers, func(i int) error {
		for n := i; n < largeList; n += writers {
			res := newThing(fmt.Sprintf("name-%03d", n))
			res.Generation = "0"
			if _, err := s.b.WriteCAS(s.ctx, res); err != nil {
				return err
			}
		}
		return nil
	})
	all := s.list(things, home, "")
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- takeTurns(s, all[0], all[len(all)-1], stop) }()
	for range rounds {
		turnsOf(s, "a list", s.list(things, home, ""))
	}
	if pager, ok := storage.As[storage.Pager](s.b); ok {
		for range rounds {
			listing, cursor := s.pages(pager, homeThings, 150)
			turns := turnsOf(s, "a listing in pages", listing)
			if s.h.NoResumer == "" && s.h.MergesEvents == "" {
				expectNextTurns(s, cursor, turns)
			}
		}
	}
	close(stop)
	s.noError("the writer", s.result("the writer", done))
}

// takeTurns updates two resources in turn, and counts the turns in their generations.
func takeTurns(s *suite, first, last *resourcepb.Resource, stop <-chan struct{}) error {
	pair := []*resourcepb.Resource{clone(first), clone(last)}
	for turn := 1; ; turn++ {
		for i, res := range pair {
			select {
			case <-stop:
				return nil
			default:
			}
			res.Generation = strconv.Itoa(turn)
			var err error
			if pair[i], err = s.b.WriteCAS(s.ctx, res); err != nil {
				return err
			}
		}
	}
}

// turnsOf demands that a list is a single cut, and returns the turns of the updated resources by their names.
func turnsOf(s *suite, what string, list []*resourcepb.Resource) map[string]int {
	s.Helper()
	if len(list) != largeList {
		s.Fatalf("%s has %d resources, want %d", what, len(list), largeList)
	}
	first, last := list[0], list[len(list)-1]
	turns := map[string]int{first.Id.Name: turnOf(s, first), last.Id.Name: turnOf(s, last)}
	if ahead := turnOf(s, first) - turnOf(s, last); ahead != 0 && ahead != 1 {
		s.Fatalf("%s is no cut: the first resource is in turn %d, the last in turn %d", what, turnOf(s, first), turnOf(s, last))
	}
	return turns
}

func turnOf(s *suite, res *resourcepb.Resource) int {
	s.Helper()
	return must[int](s)(strconv.Atoi(res.Generation))
}

// expectNextTurns demands that a watch from the cursor of a listing begins with the next turn of each updated resource.
func expectNextTurns(s *suite, cursor string, turns map[string]int) {
	s.Helper()
	w := s.resume(cursor, homeThings)
	defer w.Close()
	for len(turns) > 0 {
		res := subject(s.next(w))
		turn, waiting := turns[res.Id.Name]
		if waiting && turnOf(s, res) != turn+1 {
			s.Fatalf("the first event of %s after the listing, which shows turn %d, is of turn %d", res.Id.Name, turn, turnOf(s, res))
		}
		delete(turns, res.Id.Name)
	}
}
