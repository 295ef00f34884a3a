package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/resourcepb/resourcegrpc"
)

// notReady waits until the readiness probe of a server reports that it is not ready.
func (s *serverProcess) notReady() {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		code, _ := getText(s.t, "http://"+s.admin+"/readyz")
		return code == http.StatusServiceUnavailable
	}, waitTimeout, 10*time.Millisecond)
}

// Requests are served while probes report that the server is going to end. A second signal ends it at once.
func TestServeDrainDelay(t *testing.T) {
	t.Parallel()
	s := serveStore(t, fileURL(t), "--admin", "127.0.0.1:0", "--drain-delay", "1h")
	s.signal(syscall.SIGTERM)
	s.notReady()
	s.cli(t).ok(configMap("a", "1"), "apply", "-f", "-")
	code, _ := s.get("/api/core/v1/ConfigMap")
	require.Equal(t, http.StatusOK, code)
	s.signal(syscall.SIGTERM)
	require.NotEqual(t, cli.ExitOK, s.end())

	short := serveStore(t, fileURL(t), "--drain-delay", "1ms")
	short.signal(syscall.SIGTERM)
	require.Equal(t, cli.ExitOK, short.end())
}

// A client opens another connection when one has reached its age. Active calls continue on the old one.
func TestServeConnectionAge(t *testing.T) {
	t.Parallel()
	s := serveStore(t, memoryURL(), "--connection-age", "100ms")
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	conn, err := grpc.NewClient(s.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	thing := &resourcepb.Type{Group: "core", GroupVersion: "v1", Kind: "ConfigMap"}
	watch, err := resourcegrpc.NewResourceServiceClient(conn).WatchList(ctx, &resourcepb.WatchListRequest{Type: thing, Tenancy: &resourcepb.Tenancy{Partition: "default", Namespace: "default"}})
	require.NoError(t, err)
	ev, err := watch.Recv()
	require.NoError(t, err)
	require.NotNil(t, ev.GetEndOfSnapshot())
	for state := conn.GetState(); state == connectivity.Ready; state = conn.GetState() {
		require.True(t, conn.WaitForStateChange(ctx, state), "the connection is as old as the test")
	}
	s.cli(t).ok(configMap("a", "1"), "apply", "-f", "-")
	ev, err = watch.Recv()
	require.NoError(t, err)
	require.Equal(t, "a", ev.GetUpsert().GetResource().GetId().GetName())
}

// Probes are answered until the last request has been answered.
func TestServeProbesEndLast(t *testing.T) {
	t.Parallel()
	store := fileURL(t)
	s := serveStore(t, store, "--admin", "127.0.0.1:0", "--drain", "1h")
	release := lockFile(t, store) // the request waits for the store
	defer release()
	conn, err := net.Dial("tcp", s.http)
	require.NoError(t, err)
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "PUT /api/demo/v1/Greeting/a HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(textOf), textOf)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, text := getText(t, "http://"+s.admin+"/metrics")
		return strings.Contains(text, "\nhttp_requests_in_flight 1\n")
	}, waitTimeout, 10*time.Millisecond)
	s.signal(syscall.SIGTERM)
	require.Eventually(t, func() bool { // the drain has begun
		c, err := net.Dial("tcp", s.http)
		if err == nil {
			c.Close()
		}
		return err != nil
	}, waitTimeout, 10*time.Millisecond)
	s.notReady()
	release()
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusOK, answer.StatusCode)
	require.Equal(t, cli.ExitOK, s.end())
}

// A caller beyond its rate is told when to retry, over gRPC and HTTP. Others are served.
func TestServeRate(t *testing.T) {
	t.Parallel()
	s, admin := serveTokens(t, "--rate", "1")
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	c := resourcegrpc.NewResourceServiceClient(dialGRPC(t, s))
	list := func() error {
		_, err := c.List(metadata.AppendToOutgoingContext(ctx, "x-consul-token", admin), &resourcepb.ListRequest{
			Type: &resourcepb.Type{Group: "core", GroupVersion: "v1", Kind: "ConfigMap"}, Tenancy: &resourcepb.Tenancy{},
		})
		return err
	}
	var err error
	for err == nil {
		err = list()
	}
	require.Equal(t, codes.ResourceExhausted, status.Code(err), "%v", err)
	require.Len(t, status.Convert(err).Details(), 1)
	require.IsType(t, &errdetails.RetryInfo{}, status.Convert(err).Details()[0])

	var got *http.Response
	for got == nil || got.StatusCode == http.StatusOK {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.http+"/api/core/v1/ConfigMap", nil)
		require.NoError(t, err)
		r.Header.Set("X-Consul-Token", admin)
		got, err = http.DefaultClient.Do(r)
		require.NoError(t, err)
		require.NoError(t, got.Body.Close())
	}
	require.Equal(t, http.StatusTooManyRequests, got.StatusCode)
	require.Equal(t, "1", got.Header.Get("Retry-After"))
	require.Eventually(t, func() bool { return list() == nil }, waitTimeout, 100*time.Millisecond, "the limit does not end")
}
