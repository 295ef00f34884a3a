package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/resourcepb/resourcegrpc"
)

// serveTokens starts a server with a token file and returns the token of its admin.
func serveTokens(t *testing.T, args ...string) (s *serverProcess, admin string) {
	t.Helper()
	admin, hash := token()
	file := write(t, t.TempDir(), "tokens.yaml", fmt.Sprintf("tokens:\n  - {name: admin, sha256: %s, rules: [{types: [\"*\"], may: [read, list, write]}]}\n", hash))
	return serveStore(t, fileURL(t), append(args, "--tokens", file, "--admin", "127.0.0.1:0")...), admin
}

// dialGRPC returns a connection to the gRPC server.
func dialGRPC(t *testing.T, s *serverProcess) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(s.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// A call without a valid token is refused before the server reads its message. Calls without a token that need none, such as probes, are bounded in
// number, and callers with a token are served beside them.
func TestCallsWithoutTokenAreRefusedEarly(t *testing.T) {
	t.Parallel()
	s, admin := serveTokens(t)
	conn := dialGRPC(t, s)
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	for _, method := range []string{
		resourcegrpc.ResourceService_Write_FullMethodName, "/hashicorp.consul.resource.ResourceService/Write",
		resourcegrpc.ResourceService_WatchList_FullMethodName, grpc_reflection_v1.ServerReflection_ServerReflectionInfo_FullMethodName,
	} {
		for _, token := range []string{"", admin + "x"} {
			ctx := metadata.AppendToOutgoingContext(ctx, "x-consul-token", token)
			stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
			require.NoError(t, err)
			err = stream.RecvMsg(&resourcepb.WriteResponse{}) // no message was sent
			require.Equal(t, codes.Unauthenticated, status.Code(err), "%s with the token %q: %v", method, token, err)
		}
		require.Contains(t, s.waitForLog(fmt.Sprintf(`"method":%q,"code":"Unauthenticated"`, method)), `"peer":"127.0.0.1:`)
	}

	probes := grpc_health_v1.NewHealthClient(conn)
	refused := make(chan error)
	open, stop := context.WithCancel(ctx)
	defer stop()
	const excess = 10
	for range 256 + excess {
		go func() {
			w, err := probes.Watch(open, &grpc_health_v1.HealthCheckRequest{})
			for err == nil {
				_, err = w.Recv()
			}
			if open.Err() == nil {
				refused <- err
			}
		}()
	}
	for range excess {
		require.Equal(t, codes.ResourceExhausted, status.Code(<-refused))
	}
	for range 256 + excess { // probes whose message never arrives
		stream, err := conn.NewStream(open, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, grpc_health_v1.Health_Check_FullMethodName)
		require.NoError(t, err)
		defer func() { _ = stream.CloseSend() }()
	}
	_, err := probes.Check(ctx, &grpc_health_v1.HealthCheckRequest{})
	require.NoError(t, err, "hostile clients block the probes of an honest one")
	s.cli(t).with("--token", admin).ok(configMap("a", "1"), "apply", "-f", "-")
	_, err = probes.Check(metadata.AppendToOutgoingContext(ctx, "x-consul-token", admin), &grpc_health_v1.HealthCheckRequest{})
	require.NoError(t, err, "a probe with a token counts as one without")
	stop()
	require.Eventually(t, func() bool {
		_, err := probes.Check(ctx, &grpc_health_v1.HealthCheckRequest{})
		return err == nil
	}, waitTimeout, 10*time.Millisecond, "the probes that ended still count")
}

// Connections beyond the limit of an address wait. They leave file descriptors for the store, the other address and the probes.
func TestConnectionsAreLimited(t *testing.T) {
	t.Parallel()
	const files = 150
	s := startServerBy(t, []string{"sh", "-c", fmt.Sprintf(`ulimit -n %d; exec "$0" "$@"`, files)}, fileURL(t), "--admin", "127.0.0.1:0").listening()
	for range 2 * files {
		conn, err := net.Dial("tcp", s.http)
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		_, err = fmt.Fprintf(conn, "PUT /api/core/v1/ConfigMap/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool {
		_, text := getText(t, "http://"+s.admin+"/metrics")
		return strings.Contains(text, fmt.Sprintf("\nhttp_requests_in_flight %d\n", files/3))
	}, waitTimeout, 10*time.Millisecond)
	code, _ := getText(t, "http://"+s.admin+"/readyz")
	require.Equal(t, http.StatusOK, code)
	s.cli(t).ok(configMap("a", "1"), "apply", "-f", "-")
}

// A server without tokens at a loopback address serves the programs of its machine, and no pages in its browsers.
func TestPagesDoNotReachOpenServer(t *testing.T) {
	t.Parallel()
	open := serveStore(t, fileURL(t))
	closed, admin := serveTokens(t)
	for name, tc := range map[string]struct {
		method, host string
		header       http.Header
		want         int
	}{
		"a program":              {http.MethodGet, open.http, nil, http.StatusOK},
		"localhost":              {http.MethodGet, "localhost:8500", nil, http.StatusOK},
		"an address of IPv6":     {http.MethodGet, "[::1]:8500", nil, http.StatusOK},
		"a redirected name":      {http.MethodGet, "evil.example:8500", nil, http.StatusForbidden},
		"delete by that name":    {http.MethodDelete, "evil.example", nil, http.StatusForbidden},
		"an address with a name": {http.MethodGet, "127.0.0.1.evil.example", nil, http.StatusForbidden},
		"another site":           {http.MethodPut, open.http, http.Header{"Origin": {"https://evil.example"}}, http.StatusForbidden},
		"another site reads":     {http.MethodGet, open.http, http.Header{"Sec-Fetch-Site": {"cross-site"}}, http.StatusForbidden},
		"the server's own page":  {http.MethodGet, open.http, http.Header{"Sec-Fetch-Site": {"same-origin"}}, http.StatusOK},
	} {
		r, err := http.NewRequestWithContext(t.Context(), tc.method, "http://"+open.http+"/api/core/v1/ConfigMap", strings.NewReader(""))
		require.NoError(t, err)
		r.Host = tc.host
		for key := range tc.header {
			r.Header.Set(key, tc.header.Get(key))
		}
		got, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		require.NoError(t, got.Body.Close())
		require.Equal(t, tc.want, got.StatusCode, name)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+closed.http+"/api/core/v1/ConfigMap", nil)
	require.NoError(t, err)
	r.Host = "ashlar.example"
	r.Header.Set("X-Consul-Token", admin)
	got, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	require.NoError(t, got.Body.Close())
	require.Equal(t, http.StatusOK, got.StatusCode, "a server with tokens has any name")
}
