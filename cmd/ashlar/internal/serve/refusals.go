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
	end     context.CancelFunc
	refused atomic.Int64
}

// connectionKey is the context key of the connection of a call.
type connectionKey struct{}

// refuse counts a refused call, whose context is ctx.
func (c *connection) refuse(ctx context.Context) {
	if c.refused.Add(1) < maxRefused {
		return
	}
	if p, ok := peer.FromContext(ctx); ok {
		if at, ok := p.AuthInfo.(closableInfo); ok {
			_ = at.raw.Close() // fails only on a connection that has ended
		}
	}
}

// TagConn returns the context of a new connection, of which the contexts of its calls are derived.
func (*admission) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	ctx, end := context.WithCancel(ctx)
	return context.WithValue(ctx, connectionKey{}, &connection{end: end})
}

// HandleConn ends the contexts of a connection that has ended.
func (*admission) HandleConn(ctx context.Context, event stats.ConnStats) {
	if _, ended := event.(*stats.ConnEnd); !ended {
		return
	}
	if c, ok := ctx.Value(connectionKey{}).(*connection); ok {
		c.end()
	}
}

// TagRPC returns the context of a call.
func (*admission) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC does nothing.
func (*admission) HandleRPC(context.Context, stats.RPCStats) {}
