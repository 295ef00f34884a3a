package serve

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// idle is a stream that only has a context.
type idle struct {
	grpc.ServerStream
	ctx context.Context
}

func (i idle) Context() context.Context { return i.ctx }

// A panic in a call becomes an internal error without its cause, which is logged.
func TestPanicsEndOneCallOnly(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	logger, err := NewLogger(&log, "text", "info")
	if err != nil {
		t.Fatal(err)
	}
	g := guard{metrics: newMetrics(), log: requestLog{logger: logger}}
	_, unary := g.unary(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/a/Unary"}, func(context.Context, any) (any, error) { panic("secret cause") })
	stream := g.stream(nil, idle{ctx: t.Context()}, &grpc.StreamServerInfo{FullMethod: "/a/Stream"}, func(any, grpc.ServerStream) error { panic("secret cause") })
	for method, err := range map[string]error{"/a/Unary": unary, "/a/Stream": stream} {
		if status.Code(err) != codes.Internal || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", method, err)
		}
		if !strings.Contains(log.String(), "method="+method) || !strings.Contains(log.String(), "secret cause") {
			t.Errorf("the log does not mention %s: %s", method, &log)
		}
	}
}

// The same applies to HTTP, and a response that has begun is cut off. The panic is logged at every level.
func TestPanicsEndOneRequestOnly(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	logger, err := NewLogger(&log, "text", "error")
	if err != nil {
		t.Fatal(err)
	}
	g := guard{metrics: newMetrics(), log: requestLog{logger: logger}}
	server := httptest.NewServer(g.handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/begun" {
			_, _ = w.Write([]byte("half"))
			_ = http.NewResponseController(w).Flush()
		}
		panic("secret cause")
	})))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	defer server.Close()
	answer, err := server.Client().Get(server.URL + "/none")
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(answer.Body)
	_ = answer.Body.Close() // it was read
	if err != nil || answer.StatusCode != http.StatusInternalServerError || strings.Contains(string(text), "secret") {
		t.Errorf("%d %s: %v", answer.StatusCode, text, err)
	}
	begun, err := server.Client().Get(server.URL + "/begun")
	if err != nil {
		t.Fatal(err)
	}
	text, err = io.ReadAll(begun.Body)
	_ = begun.Body.Close() // it was read
	if err == nil {
		t.Errorf("a response that was cut off looks complete: %s", text)
	}
	server.Close() // and with it the writers of the log
	for _, path := range []string{"/none", "/begun"} {
		if !strings.Contains(log.String(), "GET "+path) {
			t.Errorf("the log does not mention %s: %s", path, &log)
		}
	}
	var panics dto.Metric
	if err := g.metrics.panics.Write(&panics); err != nil || panics.GetCounter().GetValue() != 2 {
		t.Errorf("the metric counts %v panics, want 2: %v", panics.GetCounter().GetValue(), err)
	}
}
