package servicetest

import (
	"context"
	"time"

	"google.golang.org/grpc"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// faulty is a client with replaceable methods.
type faulty struct {
	store    storage.Backend
	read     func(context.Context, *resourcepb.ReadRequest) (*resourcepb.ReadResponse, error)
	write    func(context.Context, *resourcepb.WriteRequest) (*resourcepb.WriteResponse, error)
	status   func(context.Context, *resourcepb.WriteStatusRequest) (*resourcepb.WriteStatusResponse, error)
	list     func(context.Context, *resourcepb.ListRequest) (*resourcepb.ListResponse, error)
	owned    func(context.Context, *resourcepb.ListByOwnerRequest) (*resourcepb.ListByOwnerResponse, error)
	delete   func(context.Context, *resourcepb.DeleteRequest) (*resourcepb.DeleteResponse, error)
	validate func(context.Context, *resourcepb.MutateAndValidateRequest) (*resourcepb.MutateAndValidateResponse, error)
	watch    func(context.Context, *resourcepb.WatchListRequest) (grpc.ServerStreamingClient[resourcepb.WatchEvent], error)

	revisions func(context.Context, *resourcepb.RevisionsRequest) (*resourcepb.RevisionsResponse, error)
	listAt    func(context.Context, *resourcepb.ListAtRequest) (*resourcepb.ListAtResponse, error)
	changes   func(context.Context, *resourcepb.ChangesRequest) (grpc.ServerStreamingClient[resourcepb.Change], error)
	selected  func(context.Context, *resourcepb.WatchStoreRequest) (grpc.ServerStreamingClient[resourcepb.StoreEvent], error)
}

// without returns a client method without the options parameter.
func without[Q, A any](f func(context.Context, Q, ...grpc.CallOption) (A, error)) func(context.Context, Q) (A, error) {
	return func(ctx context.Context, req Q) (A, error) { return f(ctx, req) }
}

// client is a fault of the client; spoil replaces its methods.
func client(spoil func(*faulty)) *fault {
	return &fault{client: func(c Client, store storage.Backend) Client {
		f := &faulty{
			store: store, read: without(c.Read), write: without(c.Write), status: without(c.WriteStatus), list: without(c.List),
			owned: without(c.ListByOwner), delete: without(c.Delete), validate: without(c.MutateAndValidate), watch: without(c.WatchList),
			revisions: without(c.Revisions), listAt: without(c.ListAt), changes: without(c.Changes), selected: without(c.WatchStore),
		}
		spoil(f)
		return f
	}}
}

// around replaces a function by one that gets the original.
func around[Q, A any](f *func(context.Context, Q) (A, error),
	by func(ctx context.Context, req Q, next func(context.Context, Q) (A, error)) (A, error)) {
	next := *f
	*f = func(ctx context.Context, req Q) (A, error) { return by(ctx, req, next) }
}

func (f *faulty) Read(ctx context.Context, in *resourcepb.ReadRequest, _ ...grpc.CallOption) (*resourcepb.ReadResponse, error) {
	return f.read(ctx, in)
}

func (f *faulty) Write(ctx context.Context, in *resourcepb.WriteRequest, _ ...grpc.CallOption) (*resourcepb.WriteResponse, error) {
	return f.write(ctx, in)
}

func (f *faulty) WriteStatus(ctx context.Context, in *resourcepb.WriteStatusRequest,
	_ ...grpc.CallOption) (*resourcepb.WriteStatusResponse, error) {
	return f.status(ctx, in)
}

func (f *faulty) List(ctx context.Context, in *resourcepb.ListRequest, _ ...grpc.CallOption) (*resourcepb.ListResponse, error) {
	return f.list(ctx, in)
}

func (f *faulty) ListByOwner(ctx context.Context, in *resourcepb.ListByOwnerRequest,
	_ ...grpc.CallOption) (*resourcepb.ListByOwnerResponse, error) {
	return f.owned(ctx, in)
}

func (f *faulty) Delete(ctx context.Context, in *resourcepb.DeleteRequest, _ ...grpc.CallOption) (*resourcepb.DeleteResponse, error) {
	return f.delete(ctx, in)
}

func (f *faulty) MutateAndValidate(ctx context.Context, in *resourcepb.MutateAndValidateRequest,
	_ ...grpc.CallOption) (*resourcepb.MutateAndValidateResponse, error) {
	return f.validate(ctx, in)
}

func (f *faulty) WatchList(ctx context.Context, in *resourcepb.WatchListRequest,
	_ ...grpc.CallOption) (grpc.ServerStreamingClient[resourcepb.WatchEvent], error) {
	return f.watch(ctx, in)
}

func (f *faulty) Revisions(ctx context.Context, in *resourcepb.RevisionsRequest,
	_ ...grpc.CallOption) (*resourcepb.RevisionsResponse, error) {
	return f.revisions(ctx, in)
}

func (f *faulty) ListAt(ctx context.Context, in *resourcepb.ListAtRequest, _ ...grpc.CallOption) (*resourcepb.ListAtResponse, error) {
	return f.listAt(ctx, in)
}

func (f *faulty) Changes(ctx context.Context, in *resourcepb.ChangesRequest,
	_ ...grpc.CallOption) (grpc.ServerStreamingClient[resourcepb.Change], error) {
	return f.changes(ctx, in)
}

func (f *faulty) WatchStore(ctx context.Context, in *resourcepb.WatchStoreRequest,
	_ ...grpc.CallOption) (grpc.ServerStreamingClient[resourcepb.StoreEvent], error) {
	return f.selected(ctx, in)
}

// faultyStream is a faulty event stream.
type faultyStream struct {
	grpc.ServerStreamingClient[resourcepb.WatchEvent]
	recv func() (*resourcepb.WatchEvent, error)
}

func (s faultyStream) Recv() (*resourcepb.WatchEvent, error) { return s.recv() }

// events returns a fault of streams: spoil replaces each event or error by any number of them.
func events(spoil func(f *faulty, ev *resourcepb.WatchEvent, err error) ([]*resourcepb.WatchEvent, error)) *fault {
	return client(func(f *faulty) {
		around(&f.watch, func(ctx context.Context, req *resourcepb.WatchListRequest,
			next func(context.Context, *resourcepb.WatchListRequest) (grpc.ServerStreamingClient[resourcepb.WatchEvent],
				error)) (grpc.ServerStreamingClient[resourcepb.WatchEvent], error) {
			stream, err := next(ctx, req)
			if err != nil {
				return nil, err
			}
			var ready []*resourcepb.WatchEvent
			return faultyStream{stream, func() (*resourcepb.WatchEvent, error) {
				for len(ready) == 0 {
					ev, err := stream.Recv()
					if ready, err = spoil(f, ev, err); err != nil {
						return nil, err
					}
				}
				first := ready[0]
				ready = ready[1:]
				return first, nil
			}}, nil
		})
	})
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
