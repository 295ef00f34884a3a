package relay

import (
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"github.com/ashlar-dev/storage/internal/wire"
	"github.com/ashlar-dev/storage/internal/wire/wiregrpc"
)

// connections are the connections to relays and candidates, by their records.
type connections struct {
	id      *identity
	process string

	mu   sync.Mutex
	open map[peer]*grpc.ClientConn
}

// peer is a record without its name.
type peer struct{ process, address, keyHash, token string }

func (r *record) peer() peer { return peer{r.process, r.address, r.keyHash, r.token} }

// reconnect is the pause before a connection is made again. It also bounds the time of making one, which the other relay waits for.
var reconnect = backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: probeTimeout}

// dial returns a connection to a process.
func (c *connections) dial(p peer) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+p.address,
		grpc.WithTransportCredentials(credentials.NewTLS(c.id.clientTLS(p.address, p.keyHash))),
		grpc.WithPerRPCCredentials(bearer(c.id.tokenFor(p.token))),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingAfter, Timeout: pingTimeout}),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: probeTimeout}),
	)
}

// to returns a client of a process, whose connection is kept.
func (c *connections) to(p peer) (wiregrpc.WatchesClient, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn, ok := c.open[p]; ok {
		return wiregrpc.NewWatchesClient(conn), nil
	}
	conn, err := c.dial(p)
	if err != nil {
		return nil, err
	}
	c.open[p] = conn
	return wiregrpc.NewWatchesClient(conn), nil
}

// keep closes the connections to all other processes.
func (c *connections) keep(peers []peer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for p, conn := range c.open {
		if !slices.Contains(peers, p) {
			_ = conn.Close()
			delete(c.open, p)
		}
	}
}

// probeTimeout bounds a probe, and the making of a connection.
const probeTimeout = 2 * time.Second

// probe reports whether the process of a record can be reached. wanted makes a candidate look for a missing relay.
func (c *connections) probe(ctx context.Context, r *record, wanted bool) bool {
	conn, err := c.dial(r.peer())
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	out, err := wiregrpc.NewWatchesClient(conn).Probe(ctx, &wire.ProbeRequest{Process: c.process, Wanted: wanted})
	return err == nil && out.GetProcess() == r.process
}

// probeAll probes the processes of records concurrently, and reports which ones can be reached.
func (c *connections) probeAll(ctx context.Context, all []*record, wanted bool) []bool {
	reached := make([]bool, len(all))
	var probes sync.WaitGroup
	for i, r := range all {
		probes.Go(func() { reached[i] = r.process != c.process && c.probe(ctx, r, wanted) })
	}
	probes.Wait()
	return reached
}
