package serve

import (
	"context"
	"net/http"

	"google.golang.org/grpc"

	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/resourcepb/resourcegrpc"
)

// turnKey is the context key of the turn of an HTTP request.
type turnKey struct{}

// turn is the turn of an HTTP request, which it takes for its first list or watch.
type turn struct {
	turns   *turns
	caller  string
	release func() // nil before the turn
}

func (t *turn) take(ctx context.Context) (err error) {
	if t.release == nil {
		t.release, err = t.turns.take(ctx, t.caller, 1)
	}
	return err
}

func (t *turn) end() {
	if t.release != nil {
		t.release()
	}
}

// withTurn gives each request of a handler a turn, which ends with the request. callerOf returns the name of the request's token.
func withTurn(next http.Handler, all *turns, callerOf func(*http.Request) string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t := &turn{turns: all, caller: callerOf(r)}
		defer t.end()
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), turnKey{}, t)))
	})
}

// pacedClient is the client of the HTTP handler. Lists, and the snapshots of watches, wait for the turn of their request. A list keeps it until
// its answer has been sent.
type pacedClient struct {
	resourcegrpc.ResourceServiceClient
}

func takeTurn(ctx context.Context) (*turn, error) {
	t, ok := ctx.Value(turnKey{}).(*turn)
	if !ok {
		return &turn{}, nil
	}
	return t, t.take(ctx)
}

// List implements the client.
func (c pacedClient) List(ctx context.Context, in *resourcepb.ListRequest, o ...grpc.CallOption) (*resourcepb.ListResponse, error) {
	if _, err := takeTurn(ctx); err != nil {
		return nil, err
	}
	return c.ResourceServiceClient.List(ctx, in, o...)
}

// ListByOwner implements the client.
func (c pacedClient) ListByOwner(ctx context.Context, in *resourcepb.ListByOwnerRequest, o ...grpc.CallOption) (*resourcepb.ListByOwnerResponse, error) {
	if _, err := takeTurn(ctx); err != nil {
		return nil, err
	}
	return c.ResourceServiceClient.ListByOwner(ctx, in, o...)
}

// WatchList implements the client.
func (c pacedClient) WatchList(ctx context.Context, in *resourcepb.WatchListRequest, o ...grpc.CallOption) (grpc.ServerStreamingClient[resourcepb.WatchEvent], error) {
	if in.GetCursor() != "" {
		return c.ResourceServiceClient.WatchList(ctx, in, o...)
	}
	t, err := takeTurn(ctx)
	if err != nil {
		return nil, err
	}
	stream, err := c.ResourceServiceClient.WatchList(ctx, in, o...)
	return pacedStream{stream, t}, err
}

// pacedHistory is the history client of the HTTP handler. Lists and changes wait for the turn of their request, and keep it until its end.
type pacedHistory struct {
	resourcegrpc.HistoryServiceClient
}

// ListAt implements the client.
func (c pacedHistory) ListAt(ctx context.Context, in *resourcepb.ListAtRequest, o ...grpc.CallOption) (*resourcepb.ListAtResponse, error) {
	if _, err := takeTurn(ctx); err != nil {
		return nil, err
	}
	return c.HistoryServiceClient.ListAt(ctx, in, o...)
}

// Changes implements the client.
func (c pacedHistory) Changes(ctx context.Context, in *resourcepb.ChangesRequest, o ...grpc.CallOption) (grpc.ServerStreamingClient[resourcepb.Change], error) {
	if _, err := takeTurn(ctx); err != nil {
		return nil, err
	}
	return c.HistoryServiceClient.Changes(ctx, in, o...)
}

// pacedStream ends the turn of a watch after its snapshot.
type pacedStream struct {
	grpc.ServerStreamingClient[resourcepb.WatchEvent]
	turn *turn
}

// Recv returns the next event.
func (s pacedStream) Recv() (*resourcepb.WatchEvent, error) {
	ev, err := s.ServerStreamingClient.Recv()
	if ev.GetEndOfSnapshot() != nil {
		s.turn.end()
	}
	return ev, err
}
