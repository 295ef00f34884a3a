package serve

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/resourcepb/resourcegrpc"
)

// countedListener counts the connections that it accepts.
type countedListener struct {
	net.Listener
	accepted chan struct{}
}

func (l countedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		l.accepted <- struct{}{}
	}
	return conn, err
}

// serveRefusals starts a gRPC server that refuses every call. It returns a client, the connections that the server has accepted, and the contexts of the
// refused calls.
func serveRefusals(t *testing.T) (client *grpc.ClientConn, accepted <-chan struct{}, refused <-chan context.Context) {
	t.Helper()
	tokens, err := loadTokens(save(t, "tokens.yaml", fmt.Sprintf("tokens:\n  - {name: a, sha256: %x, rules: [{types: [\"*\"], may: [read]}]}\n", sha256.Sum256([]byte("secret")))))
	if err != nil {
		t.Fatal(err)
	}
	calls := &admission{tokens: tokens, limits: newLimits(0, 0), log: requestLog{logger: slog.New(slog.DiscardHandler)}}
	contexts := make(chan context.Context, 2*maxRefusals)
	server := grpc.NewServer(grpc.Creds(newHandshakes(insecure.NewCredentials())), grpc.StatsHandler(connections{}),
		grpc.InTapHandle(func(ctx context.Context, info *tap.Info) (context.Context, error) {
			contexts <- ctx
			return calls.tap(ctx, info)
		}))
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	counted := countedListener{listener, make(chan struct{}, 100)}
	go func() { _ = serveGRPC(server, counted) }()
	t.Cleanup(server.Stop)
	client, err = grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client, counted.accepted, contexts
}

// The context of a refused call, which holds a timer until the deadline of the call, ends with the connection.
func TestRefusedCallsEndWithConnection(t *testing.T) {
	t.Parallel()
	client, _, refused := serveRefusals(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	_, err := resourcegrpc.NewResourceServiceClient(client).Read(ctx, &resourcepb.ReadRequest{})
	if status.Code(err) != codes.Unauthenticated {
		t.Fatal(err)
	}
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-(<-refused).Done():
	case <-time.After(time.Minute):
		t.Fatal("the context of a refused call outlives its connection")
	}
}

// A client that repeats refused calls is disconnected.
func TestConnectionOfRefusedCallsIsClosed(t *testing.T) {
	t.Parallel()
	client, accepted, _ := serveRefusals(t)
	resources := resourcegrpc.NewResourceServiceClient(client)
	client.Connect()
	<-accepted
	for range 2 * maxRefusals {
		_, _ = resources.Read(t.Context(), &resourcepb.ReadRequest{}) // refused, or cut off with the connection
		select {
		case <-accepted:
			return
		default:
		}
	}
	t.Fatalf("the connection is still open after %d refused calls", 2*maxRefusals)
}

// Refusals of the guard of an open server are logged, as all requests are.
func TestRefusedPagesAreLogged(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	logger, err := NewLogger(&log, "text", "info")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{config: &Config{Logger: logger}, metrics: newMetrics()}
	request := httptest.NewRequest(http.MethodGet, "/api/demo/v1/album", nil)
	request.Header.Set("Sec-Fetch-Site", "cross-site")
	got := httptest.NewRecorder()
	s.apiHandler(http.NotFoundHandler()).ServeHTTP(got, request)
	if got.Code != http.StatusForbidden || !strings.Contains(log.String(), "code=403") {
		t.Errorf("%d, log: %s", got.Code, &log)
	}
}

// A call without a token that is refused because of a limit is not an active call.
func TestLimitedAnonymousCallsAreNotActive(t *testing.T) {
	t.Parallel()
	tokens, err := loadTokens(save(t, "tokens.yaml", "anonymous:\n  rules: [{types: [\"*\"], may: [read]}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	calls := &admission{tokens: tokens, limits: newLimits(1.0/3600, 0), log: requestLog{logger: slog.New(slog.DiscardHandler)}}
	call := &tap.Info{FullMethodName: resourcegrpc.ResourceService_Read_FullMethodName}
	if _, err := calls.tap(t.Context(), call); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if _, err := calls.tap(t.Context(), call); status.Code(err) != codes.ResourceExhausted {
			t.Fatalf("a call beyond the limit: %v", err)
		}
	}
	if n := calls.anonymous.Load(); n != 1 {
		t.Errorf("%d calls are active, expected 1", n)
	}
}
