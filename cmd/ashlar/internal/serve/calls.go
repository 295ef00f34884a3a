package serve

import (
	"context"
	"net/http"
	"sync"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

// calls counts the active calls that end by themselves: all except watches.
type calls struct {
	mu    sync.Mutex
	count int
	idle  chan struct{} // closed when count reaches 0; nil without a waiter
}

func (c *calls) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count++
}

func (c *calls) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.count--; c.count == 0 && c.idle != nil {
		close(c.idle)
		c.idle = nil
	}
}

// wait blocks until no call is active or ctx ends. It returns the number of active calls.
func (c *calls) wait(ctx context.Context) int {
	c.mu.Lock()
	if c.count == 0 {
		c.mu.Unlock()
		return 0
	}
	if c.idle == nil {
		c.idle = make(chan struct{})
	}
	idle := c.idle
	c.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count
}

func (c *calls) unary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	c.begin()
	defer c.end()
	return next(ctx, req)
}

// rangeStream counts the lists that etcd's API sends in parts.
func (c *calls) rangeStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if info.FullMethod == etcdserverpb.KV_RangeStream_FullMethodName {
		c.begin()
		defer c.end()
	}
	return next(srv, stream)
}

func (c *calls) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !r.URL.Query().Has("watch") {
			c.begin()
			defer c.end()
		}
		next.ServeHTTP(w, r)
	})
}
