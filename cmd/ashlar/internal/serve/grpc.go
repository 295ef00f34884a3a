package serve

import (
	"errors"
	"net"
	"time"

	"google.golang.org/grpc"
)

// Limits of the gRPC server. The largest request contains one resource of at most 1 MiB. The limits of streams and pings equal the
// limits of servers with the compatible API, so that client settings fit both.
const (
	maxReceived = 4 << 20
	maxList     = 16 << 20 // of a list without a limit; gRPC's clients receive 4 MiB unless they set another limit
	maxHeaders  = 64 << 10 // of a call, which are read before the token is checked
	maxStreams  = 2048
	minPings    = 15 * time.Second
)

// grpcLimits are the limits of a gRPC server: the size of a request, the streams of a connection, and the minimum time between two pings.
type grpcLimits struct {
	request int
	streams uint32
	pings   time.Duration
}

// Keepalive: a client that vanished is detected after these times, and its watches end.
const (
	pingAfter   = 30 * time.Second
	pingTimeout = 20 * time.Second
)

// stallTimeout is the time after which a client that does not read its answers is disconnected.
const stallTimeout = time.Minute

// serveGRPC serves until the server is stopped, possibly before this call.
func serveGRPC(g *grpc.Server, l net.Listener) error {
	if err := g.Serve(l); !errors.Is(err, grpc.ErrServerStopped) {
		return err
	}
	return nil
}
