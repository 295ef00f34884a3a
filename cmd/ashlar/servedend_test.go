package main

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// Whoever connects and says nothing, such as a port scanner, does not hold up the end of the server, and with it that of everybody's calls.
func TestServeEndsInSpiteOfSilentConnections(t *testing.T) {
	t.Parallel()
	cert, key := newAuthority(t).sign("server")
	for name, args := range map[string][]string{"plain": nil, "TLS": {"--tls-cert", cert, "--tls-key", key}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serveStore(t, memoryURL(), append(args, "--drain", "1h")...)
			conn, err := net.Dial("tcp", s.grpc)
			require.NoError(t, err)
			defer conn.Close()
			require.NoError(t, conn.SetDeadline(time.Now().Add(patience/4)))
			if name == "TLS" {
				// Behind it in the queue of connections, so that the silent one is in the server's hands.
				require.Error(t, knock(s.grpc))
			} else {
				require.NoError(t, knock(s.grpc))
			}
			s.signal(syscall.SIGTERM)
			for buffer := make([]byte, 512); err == nil; { // the server may have said the first word
				_, err = conn.Read(buffer)
			}
			require.False(t, errors.Is(err, os.ErrDeadlineExceeded), "the server keeps a connection on which nobody speaks")
			require.Equal(t, cli.ExitOK, s.end())
		})
	}
}

// knock has a server answer on a connection of its own.
func knock(address string) error {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err = grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
	return err
}

// Clients that watch the server's health, as those that balance load do, are told of its end and do not hold it up.
func TestServeEndsInSpiteOfWatchesOfItsHealth(t *testing.T) {
	t.Parallel()
	s := serveStore(t, memoryURL(), "--drain", "1h")
	conn, err := grpc.NewClient(s.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience/4)
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

// A server that is told to stop before it has come up was not in trouble.
func TestServeEndsWhileItStarts(t *testing.T) {
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
