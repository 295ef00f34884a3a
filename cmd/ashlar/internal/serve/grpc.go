package serve

import (
	"errors"
	"net"
	"time"

	"google.golang.org/grpc"
)

// Limits of the gRPC server. They equal the limits of the servers with the compatible API, so that client settings fit both.
const (
	maxReceived = 50 << 20
	maxStreams  = 2048
	minPings    = 15 * time.Second
)

// Keepalive: a client that vanished is detected after these times, and its watches end.
const (
	pingAfter   = 30 * time.Second
	pingTimeout = 20 * time.Second
)

// serveGRPC serves until the server is stopped, possibly before this call.
func serveGRPC(g *grpc.Server, l net.Listener) error {
	if err := g.Serve(l); !errors.Is(err, grpc.ErrServerStopped) {
		return err
	}
	return nil
}
