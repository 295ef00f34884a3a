package serve

import (
	"errors"
	"net"
	"time"

	"google.golang.org/grpc"
)

// The limits of the gRPC server. They are those of the servers of the API that this one is compatible with, so that a client's settings
// fit both.
const (
	maxReceived = 50 << 20
	maxStreams  = 2048
	minPings    = 15 * time.Second
)

// A client that has vanished without a word is noticed after these, and what it watched is given up.
const (
	pingAfter   = 30 * time.Second
	pingTimeout = 20 * time.Second
)

// serveGRPC serves until the server is stopped, which may have come first.
func serveGRPC(g *grpc.Server, l net.Listener) error {
	if err := g.Serve(l); !errors.Is(err, grpc.ErrServerStopped) {
		return err
	}
	return nil
}
