package servicetest

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

var endingCases = topic{"Endings", []testCase{
	{name: "OverBeforeTheCall", rules: []int{23}, run: endingsBefore},
	{name: "OverInTheCall", rules: []int{23}, run: endingsDuring},
	{name: "OverInTheStore", rules: []int{23}, run: endingsStore},
	{name: "Streams", rules: []int{23}, run: endingsStreams},
	{name: "ClosedStore", rules: []int{1}, run: endingsClosed},
}}

// endings are the ways a context ends, with the expected code.
var endings = []struct {
	name string
	code codes.Code
	end  func(context.Context) (context.Context, context.CancelFunc)
}{
	{"cancelled", codes.Canceled, func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(ctx)
		timer := time.AfterFunc(instant, cancel)
		return ctx, func() { timer.Stop(); cancel() }
	}},
	{"too late", codes.DeadlineExceeded, func(ctx context.Context) (context.Context, context.CancelFunc) {
		return context.WithTimeout(ctx, instant)
	}},
}

// instant is the timeout of calls that must end by their timeout. Its length does not matter.
const instant = 20 * time.Millisecond

// over returns a context that is done.
func over(s *suite, end func(context.Context) (context.Context, context.CancelFunc)) (context.Context, context.CancelFunc) {
	ctx, cancel := end(s.ctx)
	<-ctx.Done()
	return ctx, cancel
}

func endingsBefore(s *suite) {
	stored := s.write(newThing("a", "content"))
	for _, e := range endings {
		var rows []row
		for _, c := range calls {
			rows = append(rows, row{c.name + ", " + e.name, func(s *suite) error {
				ctx, cancel := over(s, e.end)
				defer cancel()
				return c.call(s, ctx, stored)
			}, e.code, "."})
		}
		s.refuse(rows)
	}
}

// endingsDuring runs calls that block in authentication.
func endingsDuring(s *suite) {
	stored := s.write(newThing("a", "content"))
	for _, e := range endings {
		var rows []row
		for _, c := range calls {
			rows = append(rows, row{c.name + ", " + e.name, func(s *suite) error {
				ctx, cancel := e.end(s.as(stuck))
				defer cancel()
				return c.call(s, ctx, stored)
			}, e.code, "."})
		}
		s.refuse(rows)
	}
}

// endingsStore runs calls that block in the store, which then returns an error of unknown outcome.
func endingsStore(s *suite) {
	stored := s.write(newThing("a", "content"))
	s.Client = s.client(s.server(s.world, silentStore{s.store}))
	for _, e := range endings {
		var rows []row
		for _, c := range calls {
			if c.name == "MutateAndValidate" {
				continue // does not call the store
			}
			rows = append(rows, row{c.name + ", " + e.name, func(s *suite) error {
				ctx, cancel := e.end(s.ctx)
				defer cancel()
				return c.call(s, ctx, stored)
			}, e.code, "."})
		}
		s.refuse(rows)
	}
}

// silentStore is a backend over a database that does not respond.
type silentStore struct{ storage.Backend }

func unanswered(ctx context.Context) error {
	<-ctx.Done()
	return fmt.Errorf("%w: %w", storage.ErrInconsistent, ctx.Err())
}

// Read implements storage.Backend.
func (silentStore) Read(ctx context.Context, _ storage.ReadConsistency, _ *resourcepb.ID) (*resourcepb.Resource, error) {
	return nil, unanswered(ctx)
}

// List implements storage.Backend.
func (silentStore) List(ctx context.Context, _ storage.ReadConsistency, _ storage.UnversionedType, _ *resourcepb.Tenancy,
	_ string) ([]*resourcepb.Resource, error) {
	return nil, unanswered(ctx)
}

// OwnerReferences implements storage.Backend.
func (silentStore) OwnerReferences(ctx context.Context, _ *resourcepb.ID) ([]*resourcepb.ID, error) {
	return nil, unanswered(ctx)
}

// WatchList implements storage.Backend.
func (silentStore) WatchList(ctx context.Context, _ storage.UnversionedType, _ *resourcepb.Tenancy, _ string) (storage.Watch, error) {
	return nil, unanswered(ctx)
}

func endingsStreams(s *suite) {
	s.write(newThing("a", "content"))
	for _, e := range endings {
		ctx, cancel := context.WithCancel(s.ctx)
		if e.code == codes.DeadlineExceeded {
			cancel()
			ctx, cancel = context.WithTimeout(s.ctx, 10*instant)
		}
		stream, err := s.WatchList(ctx, &resourcepb.WatchListRequest{Type: thing})
		for n := 0; err == nil; n++ {
			if _, err = stream.Recv(); n == 1 && e.code == codes.Canceled {
				cancel() // after the end of the snapshot
			}
		}
		cancel()
		s.fails("a stream that is "+e.name, err, e.code, ".")
	}
}

// endingsClosed closes the store, like a server that stops.
func endingsClosed(s *suite) {
	b := s.h.open(s.TB)
	s.Client = s.client(s.server(s.world, b))
	stored := s.write(newThing("a", "content"))
	w := s.watch(&resourcepb.WatchListRequest{Type: thing})
	w.snapshot()
	if err := b.Close(); err != nil {
		s.Fatal(err)
	}
	w.ends("a stream of a closed store", codes.Unavailable)
	for _, c := range calls {
		if c.name != "MutateAndValidate" {
			s.fails(c.name+" of a closed store", c.call(s, s.ctx, stored), codes.Unavailable, ".")
		}
	}
}
