package service

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/resourcepb/resourcegrpc"
)

// Client returns a client that calls the server in the same process, without a connection. The outgoing metadata of a call's context, such as a
// token, becomes the incoming metadata of the server. Call options have no effect. As with any gRPC client, read a stream to its end or cancel
// its context.
func (s *Server) Client() resourcegrpc.ResourceServiceClient { return localClient{s} }

// History returns a client of the history service in the same process, as Client does.
func (s *Server) History() resourcegrpc.HistoryServiceClient { return localClient{s} }

// localClient calls the methods of a server.
type localClient struct{ server *Server }

// local calls a method of the server with the context that a remote call would have. As a remote call, it fails if ctx is done.
func local[Q, A any](ctx context.Context, in Q, call func(context.Context, Q) (A, error)) (A, error) {
	if err := ctx.Err(); err != nil {
		var none A
		return none, status.FromContextError(err).Err()
	}
	md, _ := metadata.FromOutgoingContext(ctx)
	return call(metadata.NewIncomingContext(ctx, md), in)
}

func (c localClient) Read(ctx context.Context, in *resourcepb.ReadRequest, _ ...grpc.CallOption) (*resourcepb.ReadResponse, error) {
	return local(ctx, in, c.server.Read)
}

func (c localClient) Write(ctx context.Context, in *resourcepb.WriteRequest, _ ...grpc.CallOption) (*resourcepb.WriteResponse, error) {
	return local(ctx, in, c.server.Write)
}

func (c localClient) WriteStatus(ctx context.Context, in *resourcepb.WriteStatusRequest, _ ...grpc.CallOption) (*resourcepb.WriteStatusResponse, error) {
	return local(ctx, in, c.server.WriteStatus)
}

func (c localClient) List(ctx context.Context, in *resourcepb.ListRequest, _ ...grpc.CallOption) (*resourcepb.ListResponse, error) {
	return local(ctx, in, c.server.List)
}

func (c localClient) ListByOwner(ctx context.Context, in *resourcepb.ListByOwnerRequest, _ ...grpc.CallOption) (*resourcepb.ListByOwnerResponse, error) {
	return local(ctx, in, c.server.ListByOwner)
}

func (c localClient) Delete(ctx context.Context, in *resourcepb.DeleteRequest, _ ...grpc.CallOption) (*resourcepb.DeleteResponse, error) {
	return local(ctx, in, c.server.Delete)
}

func (c localClient) MutateAndValidate(ctx context.Context, in *resourcepb.MutateAndValidateRequest, _ ...grpc.CallOption) (*resourcepb.MutateAndValidateResponse, error) {
	return local(ctx, in, c.server.MutateAndValidate)
}

func (c localClient) Revisions(ctx context.Context, in *resourcepb.RevisionsRequest, _ ...grpc.CallOption) (*resourcepb.RevisionsResponse, error) {
	return local(ctx, in, c.server.Revisions)
}

func (c localClient) ListAt(ctx context.Context, in *resourcepb.ListAtRequest, _ ...grpc.CallOption) (*resourcepb.ListAtResponse, error) {
	return local(ctx, in, c.server.ListAt)
}

func (c localClient) WatchList(ctx context.Context, in *resourcepb.WatchListRequest, _ ...grpc.CallOption) (grpc.ServerStreamingClient[resourcepb.WatchEvent], error) {
	st, err := local(ctx, proto.CloneOf(in), c.server.open)
	if err != nil {
		return nil, err
	}
	return newLocalStream(st.ctx, st.next, st.close, st.stop), nil
}

func (c localClient) Changes(ctx context.Context, in *resourcepb.ChangesRequest, _ ...grpc.CallOption) (grpc.ServerStreamingClient[resourcepb.Change], error) {
	changes, err := local(ctx, in, c.server.changes)
	if err != nil {
		return nil, err
	}
	return newLocalStream(changes.ctx, changes.next, changes.close, changes.close), nil
}

func (c localClient) WatchStore(ctx context.Context, in *resourcepb.WatchStoreRequest, _ ...grpc.CallOption) (grpc.ServerStreamingClient[resourcepb.StoreEvent], error) {
	w, err := local(ctx, proto.CloneOf(in), c.server.watchStore)
	if err != nil {
		return nil, err
	}
	return newLocalStream(w.ctx, w.next, w.close, w.stop), nil
}

// localStream is a stream of messages without a connection: Recv calls the server's side.
type localStream[M any] struct {
	ctx      context.Context
	next     func() (*M, error)
	close    func()
	closeErr error
}

// newLocalStream returns a stream. It calls close after the first error of next, and stop when ctx is done, even if the stream is never read.
func newLocalStream[M any](ctx context.Context, next func() (*M, error), close, stop func()) *localStream[M] {
	context.AfterFunc(ctx, stop)
	return &localStream[M]{ctx: ctx, next: next, close: close}
}

// Recv returns the next message. It blocks until there is one.
func (l *localStream[M]) Recv() (*M, error) {
	if l.closeErr != nil {
		return nil, l.closeErr
	}
	m, err := l.next()
	if err != nil {
		l.closeErr = err
		l.close()
	}
	return m, err
}

// RecvMsg receives the next message into m.
func (l *localStream[M]) RecvMsg(m any) error {
	_, isMessage := m.(*M)
	into, ok := m.(proto.Message)
	if !isMessage || !ok {
		return fmt.Errorf("RecvMsg: expected a %T", (*M)(nil))
	}
	received, err := l.Recv()
	if err != nil {
		return err
	}
	proto.Reset(into)
	proto.Merge(into, any(received).(proto.Message))
	return nil
}

// SendMsg fails: the request was sent when the stream was opened.
func (l *localStream[M]) SendMsg(any) error {
	return errors.New("SendMsg: the stream has no messages from the client")
}

// CloseSend does nothing.
func (l *localStream[M]) CloseSend() error { return nil }

// Header returns an empty header, not nil: the stream is open. A rejected call returns no stream.
func (l *localStream[M]) Header() (metadata.MD, error) { return metadata.MD{}, nil }

// Trailer returns no metadata.
func (l *localStream[M]) Trailer() metadata.MD { return nil }

// Context returns the context of the stream.
func (l *localStream[M]) Context() context.Context { return l.ctx }
