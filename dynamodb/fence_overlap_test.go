package dynamodb_test

import (
	"errors"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/dynamofake"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// Two programs close a store for different targets at the same time. One of them succeeds, and the store stays closed for its target:
// by then the programs that use the store may have moved there.
func TestTwoTargets(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	freezer := dynamofake.NewFreezer("GetItem")
	first := handleThrough(t, s, freezer.Option)
	second := handle(t, s)
	res := fixture.Write(t, second, box("a", nil))
	closings := map[string]<-chan error{"mem://here": fencing(t, first, "mem://here")}
	announced(s)
	freezer.Freeze()
	freezer.Wait()
	looks := s.Calls("GetItem")
	closings["mem://there"] = fencing(t, second, "mem://there")
	for s.Calls("GetItem") < looks+2 { // it has found the announcement, and waits
		<-time.After(time.Millisecond)
	}
	freezer.Thaw()
	var winner string
	for target, done := range closings {
		switch err := pass(t, s, done); {
		case err == nil && winner == "":
			winner = target
		case err == nil:
			t.Errorf("the store was closed both for %s and for %s", winner, target)
		case !errors.Is(err, storage.ErrCASFailure):
			t.Errorf("closing for %s: %v", target, err)
		}
	}
	if state, err := gateOf(first).Fence(t.Context()); state.Target != winner || !state.Closed || err != nil {
		t.Errorf("the fence is %+v, %v; expected to be closed for %q", state, err, winner)
	}
	if _, err := second.WriteCAS(t.Context(), res); !errors.Is(err, storage.ErrFenced) {
		t.Errorf("writing to the closed store: %v", err)
	}
}

// A closing for one target was announced, and its process is gone. A closing for another target is not held up by that.
func TestAnnouncementOfAnotherTarget(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	freezer := dynamofake.NewFreezer("GetItem")
	gone := handleThrough(t, s, freezer.Option)
	stopped := fencing(t, gone, "mem://here")
	announced(s)
	freezer.Freeze()
	freezer.Wait()
	b := handle(t, s)
	if err := pass(t, s, fencing(t, b, "mem://there")); err != nil {
		t.Fatal(err)
	}
	freezer.Thaw()
	if err := pass(t, s, stopped); !errors.Is(err, storage.ErrCASFailure) {
		t.Errorf("the process that was taken for gone: %v", err)
	}
	if state, err := gateOf(b).Fence(t.Context()); state.Target != "mem://there" || !state.Closed || err != nil {
		t.Errorf("the fence is %+v, %v", state, err)
	}
}
