package conformance

import (
	"fmt"
	"runtime"
	"sync/atomic"

	"github.com/ashlar-dev/storage/resourcepb"
)

var listCases = topic{"List", []testCase{
	{name: "IsOneCut", needs: needSnapshot, run: listCut},
}}

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
