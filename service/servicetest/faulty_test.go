package servicetest

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// method1 is a method of the service.
type method1[Q, A any] = func(context.Context, Q) (A, error)

// stream is the client's side of a stream.
type stream[M any] = grpc.ServerStreamingClient[M]

// faulty is a client with replaceable methods.
type faulty struct {
	store    storage.Backend
	read     method1[*readReq, *readRes]
	write    method1[*writeReq, *writeRes]
	status   method1[*statusReq, *statusRes]
	list     method1[*listReq, *listRes]
	owned    method1[*ownedReq, *ownedRes]
	delete   method1[*deleteReq, *deleteRes]
	validate method1[*checkReq, *checkRes]
	watch    method1[*watchReq, stream[event]]

	revisions method1[*revisionsReq, *revisionsRes]
	listAt    method1[*pastReq, *pastRes]
	changes   method1[*changesReq, stream[resourcepb.Change]]
	selected  method1[*selectReq, stream[resourcepb.StoreEvent]]
}

// without returns a client method without the options parameter.
func without[Q, A any](f func(context.Context, Q, ...grpc.CallOption) (A, error)) method1[Q, A] {
	return func(ctx context.Context, req Q) (A, error) { return f(ctx, req) }
}

// newFaulty returns a client that wraps another client's methods.
func newFaulty(c Client, store storage.Backend) *faulty {
	return &faulty{
		store: store, read: without(c.Read), write: without(c.Write), status: without(c.WriteStatus), list: without(c.List),
		owned: without(c.ListByOwner), delete: without(c.Delete), validate: without(c.MutateAndValidate), watch: without(c.WatchList),
		revisions: without(c.Revisions), listAt: without(c.ListAt), changes: without(c.Changes), selected: without(c.WatchStore),
	}
}

// client is a fault of the client; spoil replaces its methods.
func client(spoil func(*faulty)) *fault {
	return &fault{client: func(c Client, store storage.Backend) Client {
		f := newFaulty(c, store)
		spoil(f)
		return f
	}}
}

// around replaces a function by one that gets the original.
func around[Q, A any](f *method1[Q, A], by func(ctx context.Context, req Q, next method1[Q, A]) (A, error)) {
	next := *f
	*f = func(ctx context.Context, req Q) (A, error) { return by(ctx, req, next) }
}

// guarded returns a client that checks after each call that the request was not modified.
func guarded(t testing.TB, c Client) Client {
	f := newFaulty(c, nil)
	guard(t, &f.read)
	guard(t, &f.write)
	guard(t, &f.status)
	guard(t, &f.list)
	guard(t, &f.owned)
	guard(t, &f.delete)
	guard(t, &f.validate)
	guard(t, &f.watch)
	guard(t, &f.revisions)
	guard(t, &f.listAt)
	guard(t, &f.changes)
	guard(t, &f.selected)
	return f
}

func guard[Q proto.Message, A any](t testing.TB, f *method1[Q, A]) {
	around(f, func(ctx context.Context, req Q, next method1[Q, A]) (A, error) {
		before := proto.CloneOf(req)
		answer, err := next(ctx, req)
		if !proto.Equal(before, req) {
			t.Errorf("the request is changed by its call:\n from %s\n   to %s", text(before), text(req))
		}
		return answer, err
	})
}

func (f *faulty) Read(ctx context.Context, in *readReq, _ ...grpc.CallOption) (*readRes, error) {
	return f.read(ctx, in)
}

func (f *faulty) Write(ctx context.Context, in *writeReq, _ ...grpc.CallOption) (*writeRes, error) {
	return f.write(ctx, in)
}

func (f *faulty) WriteStatus(ctx context.Context, in *statusReq, _ ...grpc.CallOption) (*statusRes, error) {
	return f.status(ctx, in)
}

func (f *faulty) List(ctx context.Context, in *listReq, _ ...grpc.CallOption) (*listRes, error) {
	return f.list(ctx, in)
}

func (f *faulty) ListByOwner(ctx context.Context, in *ownedReq, _ ...grpc.CallOption) (*ownedRes, error) {
	return f.owned(ctx, in)
}

func (f *faulty) Delete(ctx context.Context, in *deleteReq, _ ...grpc.CallOption) (*deleteRes, error) {
	return f.delete(ctx, in)
}

func (f *faulty) MutateAndValidate(ctx context.Context, in *checkReq, _ ...grpc.CallOption) (*checkRes, error) {
	return f.validate(ctx, in)
}

func (f *faulty) WatchList(ctx context.Context, in *watchReq, _ ...grpc.CallOption) (stream[event], error) {
	return f.watch(ctx, in)
}

func (f *faulty) Revisions(ctx context.Context, in *revisionsReq, _ ...grpc.CallOption) (*revisionsRes, error) {
	return f.revisions(ctx, in)
}

func (f *faulty) ListAt(ctx context.Context, in *pastReq, _ ...grpc.CallOption) (*pastRes, error) {
	return f.listAt(ctx, in)
}

func (f *faulty) Changes(ctx context.Context, in *changesReq, _ ...grpc.CallOption) (stream[resourcepb.Change], error) {
	return f.changes(ctx, in)
}

func (f *faulty) WatchStore(ctx context.Context, in *selectReq, _ ...grpc.CallOption) (stream[resourcepb.StoreEvent], error) {
	return f.selected(ctx, in)
}

// faultyStream is a stream with another Recv.
type faultyStream[M any] struct {
	stream[M]
	recv func() (*M, error)
}

func (s faultyStream[M]) Recv() (*M, error) { return s.recv() }

// spoiled replaces each message, or error, of the streams of a method by any number of messages.
func spoiled[Q, M any](f *method1[Q, stream[M]], spoil func(m *M, err error) ([]*M, error)) {
	around(f, func(ctx context.Context, req Q, next method1[Q, stream[M]]) (stream[M], error) {
		s, err := next(ctx, req)
		if err != nil {
			return nil, err
		}
		var ready []*M
		return faultyStream[M]{s, func() (*M, error) {
			for len(ready) == 0 {
				m, err := s.Recv()
				if ready, err = spoil(m, err); err != nil {
					return nil, err
				}
			}
			first := ready[0]
			ready = ready[1:]
			return first, nil
		}}, nil
	})
}

// events returns a fault of watches: spoil replaces each event or error by any number of events.
func events(spoil func(f *faulty, ev *event, err error) ([]*event, error)) *fault {
	return client(func(f *faulty) {
		spoiled(&f.watch, func(ev *event, err error) ([]*event, error) { return spoil(f, ev, err) })
	})
}

// unlessNil converts a function that replaces a message, or drops it if it returns nil, for spoiled.
func unlessNil[M any](spoil func(*M) *M) func(*M, error) ([]*M, error) {
	return func(m *M, err error) ([]*M, error) {
		if err == nil {
			m = spoil(m)
		}
		if m == nil {
			return nil, err
		}
		return []*M{m}, err
	}
}

// shaky is a backend with replaceable methods. It has no capabilities.
type shaky struct {
	storage.Backend
	read   func(context.Context, storage.ReadConsistency, *resourcepb.ID) (*resourcepb.Resource, error)
	write  func(context.Context, *resourcepb.Resource) (*resourcepb.Resource, error)
	owners func(context.Context, *resourcepb.ID) ([]*resourcepb.ID, error)
}

// backend returns a function that wraps a backend with faults.
func backend(spoil func(b *shaky)) func(storage.Backend) storage.Backend {
	return func(b storage.Backend) storage.Backend {
		s := &shaky{Backend: b, read: b.Read, write: b.WriteCAS, owners: b.OwnerReferences}
		spoil(s)
		return s
	}
}

func (s *shaky) Read(ctx context.Context, c storage.ReadConsistency, id *resourcepb.ID) (*resourcepb.Resource, error) {
	return s.read(ctx, c, id)
}

func (s *shaky) WriteCAS(ctx context.Context, res *resourcepb.Resource) (*resourcepb.Resource, error) {
	return s.write(ctx, res)
}

func (s *shaky) OwnerReferences(ctx context.Context, id *resourcepb.ID) ([]*resourcepb.ID, error) {
	return s.owners(ctx, id)
}

// dawdle gives concurrent goroutines time to interfere.
func dawdle() { <-time.After(time.Millisecond) }
