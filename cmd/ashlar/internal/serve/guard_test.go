package serve

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// idle is a stream of which only the context is asked for.
type idle struct {
	grpc.ServerStream
	ctx context.Context
}

func (i idle) Context() context.Context { return i.ctx }

// A call that panics is an internal error, without its cause, which the log has.
func TestPanicsEndOneCallOnly(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	logger, err := NewLogger(&log, "text", "info")
	if err != nil {
		t.Fatal(err)
	}
	g := guard{metrics: newMetrics(), log: requestLog{logger}}
	_, unary := g.unary(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/a/Unary"}, func(context.Context, any) (any, error) { panic("secret cause") })
	stream := g.stream(nil, idle{ctx: t.Context()}, &grpc.StreamServerInfo{FullMethod: "/a/Stream"}, func(any, grpc.ServerStream) error { panic("secret cause") })
	for method, err := range map[string]error{"/a/Unary": unary, "/a/Stream": stream} {
		if status.Code(err) != codes.Internal || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", method, err)
		}
		if !strings.Contains(log.String(), "method="+method) || !strings.Contains(log.String(), "secret cause") {
			t.Errorf("the log does not tell of %s: %s", method, &log)
		}
	}
}
