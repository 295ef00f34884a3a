package servicetest

import (
	"context"
	"fmt"

	"go.uber.org/goleak"

	"github.com/ashlar-dev/storage/internal/leaks"
	"github.com/ashlar-dev/storage/resourcepb"
)

var leavingCases = topic{"Leaving", []testCase{
	{name: "NothingIsLeftBehind", rules: []int{23}, alone: true, run: leavingNothing},
}}

// leavingNothing disconnects clients with open streams: read to the end of the snapshot, half read, and not read at all, and with calls
// in progress. The server and one stream continue.
func leavingNothing(s *suite) {
	stored := s.write(newThing("a", "content"))
	staying := s.watch(&resourcepb.WatchListRequest{Type: thing})
	staying.snapshot()
	s.comeAndGo(stored) // starts goroutines that are started once and kept
	current, err := leaks.IgnoreCurrent()
	s.succeeds("list the goroutines", err)
	before := []goleak.Option{
		current,
		// Idle connections in a store client's pool. They end after some time; the case does not wait for them.
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
	}
	for range 2 {
		s.comeAndGo(stored)
		s.eventually("disconnected clients leave nothing behind", func() error { return leaks.Find(before...) })
	}
	want := s.write(newThing("a", "after all"))
	s.same("the next event of the stream that stays", staying.upsert("a"), want)
}

func (s *suite) comeAndGo(stored *resourcepb.Resource) {
	s.Helper()
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	for _, events := range []int{0, 1, 2} {
		for _, t := range []*resourcepb.Type{thing, secret, site} {
			stream, err := s.WatchList(ctx, &resourcepb.WatchListRequest{Type: t})
			s.succeeds("WatchList", err)
			for n := range events {
				if t != thing && n > 0 {
					break // the stream has no more events
				}
				_, err := stream.Recv()
				s.succeeds("Recv", err)
			}
		}
	}
	stream, err := s.WatchList(ctx, &resourcepb.WatchListRequest{Type: site})
	s.succeeds("WatchList", err)
	ended := make(chan error, 1+len(calls))
	go func() {
		var err error
		for err == nil {
			_, err = stream.Recv()
		}
		ended <- err
	}()
	s.world.calls()
	for _, c := range calls {
		go func() { ended <- c.call(s, withToken(ctx, stuck), stored) }()
	}
	s.eventually("the calls are under way", func() error {
		s.world.mu.Lock()
		defer s.world.mu.Unlock()
		if n := len(s.world.log); n < len(calls) {
			return fmt.Errorf("%d of %d are", n, len(calls))
		}
		return nil
	})
	cancel()
	for range cap(ended) {
		if err := <-ended; err == nil {
			s.Error("a call of a disconnected client continues")
		}
	}
}
