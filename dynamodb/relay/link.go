package relay

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashlar-dev/storage/dynamodb/internal/streams"
	"github.com/ashlar-dev/storage/internal/wire"
)

// link is a call of Follow at another process.
type link struct {
	call       grpc.BidiStreamingClient[wire.FollowRequest, wire.FollowResponse]
	cancel     context.CancelFunc
	onRefusal  func() // called if the process is no relay
	hasMessage bool   // a message was received
}

func (l *link) Send(in *wire.FollowRequest) error { return errorOf(l.call.Send(in)) }
func (l *link) Close()                            { l.cancel() }

func (l *link) Recv() (*wire.FollowResponse, error) {
	out, err := l.call.Recv()
	if !l.hasMessage && status.Code(err) == codes.Unavailable {
		l.onRefusal()
	}
	l.hasMessage = true
	return out, errorOf(err)
}

// localLink is a call of Follow at the relay of the same process.
type localLink struct {
	ctx       context.Context
	cancel    context.CancelCauseFunc
	requests  chan *wire.FollowRequest
	responses chan *wire.FollowResponse
}

func newLocalLink(r *streams.Relay) *localLink {
	ctx, cancel := context.WithCancelCause(context.Background())
	l := &localLink{ctx, cancel, make(chan *wire.FollowRequest, 16), make(chan *wire.FollowResponse, 16)}
	go func() {
		first, err := l.request()
		if err == nil {
			err = r.Follow(ctx, first.GetOpen(), l.request, l.respond)
		}
		cancel(err)
	}()
	return l
}

func (l *localLink) request() (*wire.FollowRequest, error) { return receive(l.ctx, l.requests) }

func (l *localLink) respond(out *wire.FollowResponse) error { return send(l.ctx, l.responses, out) }

func (l *localLink) Send(in *wire.FollowRequest) error { return send(l.ctx, l.requests, in) }

func (l *localLink) Recv() (*wire.FollowResponse, error) { return receive(l.ctx, l.responses) }

func (l *localLink) Close() { l.cancel(context.Canceled) }

func send[T any](ctx context.Context, c chan<- T, v T) error {
	select {
	case c <- v:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func receive[T any](ctx context.Context, c <-chan T) (v T, err error) {
	select {
	case v = <-c:
		return v, nil
	case <-ctx.Done():
		return v, context.Cause(ctx)
	}
}
