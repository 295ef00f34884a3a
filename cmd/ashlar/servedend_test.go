package main

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
)

// A client that connects without sending anything, such as a port scanner, does not delay the end of the server and of other clients'
// calls.
func TestServeStopsDespiteSilentConnections(t *testing.T) {
	t.Parallel()
	cert, key := newAuthority(t).sign("server")
	for name, args := range map[string][]string{"plain": nil, "TLS": {"--tls-cert", cert, "--tls-key", key}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serveStore(t, memoryURL(), append(args, "--drain", "1h")...)
			conn, err := net.Dial("tcp", s.grpc)
			require.NoError(t, err)
			defer conn.Close()
			require.NoError(t, conn.SetDeadline(time.Now().Add(waitTimeout/4)))
			if name == "TLS" {
				// Later in the queue of connections, so that the server has accepted the silent one.
				require.Error(t, knock(s.grpc))
			} else {
				require.NoError(t, knock(s.grpc))
			}
			s.signal(syscall.SIGTERM)
			for buffer := make([]byte, 512); err == nil; { // the server may have sent its settings first
				_, err = conn.Read(buffer)
			}
			require.False(t, errors.Is(err, os.ErrDeadlineExceeded), "the server keeps a silent connection")
			require.Equal(t, cli.ExitOK, s.end())
		})
	}
}

// knock makes a server answer on a separate connection.
func knock(address string) error {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	_, err = grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
	return err
}

// Clients that watch the server's health, such as load balancers, are notified of its end and do not delay it.
func TestServeStopsDespiteHealthWatches(t *testing.T) {
	t.Parallel()
	s := serveStore(t, memoryURL(), "--drain", "1h")
	conn, err := grpc.NewClient(s.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout/4)
	defer cancel()
	watch, err := grpc_health_v1.NewHealthClient(conn).Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
	require.NoError(t, err)
	answer, err := watch.Recv()
	require.NoError(t, err)
	require.Equal(t, grpc_health_v1.HealthCheckResponse_SERVING, answer.GetStatus())
	s.signal(syscall.SIGTERM)
	for err == nil {
		answer, err = watch.Recv()
		if err == nil {
			require.Equal(t, grpc_health_v1.HealthCheckResponse_NOT_SERVING, answer.GetStatus())
		}
	}
	require.Equal(t, "Unavailable", status.Code(err).String(), "%v", err)
	require.Equal(t, cli.ExitOK, s.end())
}

// A signal during the start ends the server without an error.
func TestServeStopsDuringStart(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()
	s := startServer(t, "postgres://u:p@"+silent.Addr().String()+"/x?sslmode=disable")
	conn, err := silent.Accept() // the store is being opened
	require.NoError(t, err)
	defer conn.Close()
	s.signal(syscall.SIGTERM)
	require.Equal(t, cli.ExitOK, s.end())
}
