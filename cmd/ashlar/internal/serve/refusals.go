package serve

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/stats"
)

// connection is the state of a gRPC connection: its refused calls. The gRPC server does not end the context of a refused call, which holds a
// timer until the deadline of the call. So the contexts of all calls end with the connection, and a connection with too many refused calls
// is closed.
type connection struct {
	end      context.CancelFunc
	refusals atomic.Int64
}

// maxRefusals is the number of refused calls after which a connection is closed.
const maxRefusals = 1000

// connectionKey is the context key of the connection of a call.
type connectionKey struct{}

// countRefusal counts a refused call, whose context is ctx.
func countRefusal(ctx context.Context) {
	c, ok := ctx.Value(connectionKey{}).(*connection)
	if !ok || c.refusals.Add(1) < maxRefusals {
		return
	}
	if p, ok := peer.FromContext(ctx); ok {
		if at, ok := p.AuthInfo.(closableInfo); ok {
			_ = at.raw.Close() // fails only on a connection that has ended
		}
	}
}

// connections is the stats handler of a gRPC server that has a connection in the context of each call.
type connections struct{}

// TagConn returns the context of a new connection. The contexts of its calls are derived from it.
func (connections) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	ctx, end := context.WithCancel(ctx)
	return context.WithValue(ctx, connectionKey{}, &connection{end: end})
}

// HandleConn ends the contexts of a connection that has ended.
func (connections) HandleConn(ctx context.Context, event stats.ConnStats) {
	if _, ended := event.(*stats.ConnEnd); !ended {
		return
	}
	if c, ok := ctx.Value(connectionKey{}).(*connection); ok {
		c.end()
	}
}

// TagRPC returns the context of a call.
func (connections) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC does nothing.
func (connections) HandleRPC(context.Context, stats.RPCStats) {}
