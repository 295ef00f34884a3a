package relay

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"github.com/ashlar-dev/storage/dynamodb/internal/streams"
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

// dial returns a connection to a process.
func (c *connections) dial(p peer) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+p.address,
		grpc.WithTransportCredentials(credentials.NewTLS(c.id.clientTLS(p.address, p.keyHash))),
		grpc.WithPerRPCCredentials(bearer(c.id.tokenFor(p.token))),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingAfter, Timeout: pingTimeout}),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: probeTimeout}),
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

// probe reports whether the process of a record can be reached.
func (c *connections) probe(ctx context.Context, r *record) bool {
	conn, err := c.dial(r.peer())
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	out, err := wiregrpc.NewWatchesClient(conn).Probe(ctx, &wire.ProbeRequest{Process: c.process})
	return err == nil && out.GetProcess() == r.process
}

// errNoPeer is returned while no relay is published.
var errNoPeer = errors.New("no process is a relay of the store")

// Connect implements streams.Relays. Consecutive calls use the relays in turn.
func (n *node) Connect(ctx context.Context) (streams.Link, error) {
	turn := int(n.turn.Add(1))
	local := n.local.Load()
	if local != nil && turn%2 == 1 {
		return newLocalLink(local), nil
	}
	all, err := n.relays(ctx)
	switch {
	case err == nil:
	case local != nil:
		return newLocalLink(local), nil
	default:
		return nil, err
	}
	client, err := n.peers.to(all[turn%len(all)].peer())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	call, err := client.Follow(ctx)
	if err != nil {
		cancel()
		return nil, errorOf(err)
	}
	return &link{call, cancel}, nil
}

// relays returns the published relays other than this process, in the order of their names, at least one. Without one, it probes the
// candidates, which may need it to become a relay.
func (n *node) relays(ctx context.Context) ([]*record, error) {
	ctx, cancel := context.WithTimeout(ctx, n.host.Timeout)
	defer cancel()
	all, err := n.directory.list(ctx, relayType)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(r *record) bool { return r.process == n.process })
	peers := make([]peer, len(all))
	for i, r := range all {
		peers[i] = r.peer()
	}
	n.peers.keep(peers)
	if len(all) == 0 {
		n.encourage(ctx)
		return nil, errNoPeer
	}
	return all, nil
}

// encourage makes a relay more likely.
func (n *node) encourage(ctx context.Context) {
	select {
	case n.kick <- struct{}{}:
	default:
	}
	all, err := n.directory.list(ctx, candidateType)
	if err != nil {
		return
	}
	for _, r := range all {
		if r.process != n.process {
			n.peers.probe(ctx, r)
		}
	}
}

// link is a call of Follow at another process.
type link struct {
	call   grpc.BidiStreamingClient[wire.FollowRequest, wire.FollowResponse]
	cancel context.CancelFunc
}

func (l *link) Send(in *wire.FollowRequest) error { return errorOf(l.call.Send(in)) }
func (l *link) Close()                            { l.cancel() }

func (l *link) Recv() (*wire.FollowResponse, error) {
	out, err := l.call.Recv()
	return out, errorOf(err)
}

// Page implements streams.Relays.
func (n *node) Page(ctx context.Context, in *wire.PageRequest) (*wire.PageResponse, error) {
	if r := n.local.Load(); r != nil {
		return r.Page(ctx, in)
	}
	all, err := n.relays(ctx)
	if err != nil {
		return nil, err
	}
	turn := int(n.turn.Load())
	for i := range all { // first the relay of the last Connect
		var out *wire.PageResponse
		if out, err = n.page(ctx, all[(turn+i)%len(all)], in); err == nil {
			return out, nil
		}
	}
	return nil, err
}

// pageTimeout bounds a page of one relay. It may have been suspended.
const pageTimeout = 10 * time.Second

func (n *node) page(ctx context.Context, r *record, in *wire.PageRequest) (*wire.PageResponse, error) {
	client, err := n.peers.to(r.peer())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	out, err := client.Page(ctx, in)
	return out, errorOf(err)
}

// localLink is a call of Follow at the relay of the same process.
type localLink struct {
	ctx       context.Context
	cancel    context.CancelCauseFunc
	requests  chan *wire.FollowRequest
	responses chan *wire.FollowResponse
}

func newLocalLink(r *streams.Relay) *localLink {
	ctx, cancel := context.WithCancelCause(context.Background())
	l := &localLink{ctx, cancel, make(chan *wire.FollowRequest, 16), make(chan *wire.FollowResponse, 16)}
	go func() {
		first, err := l.request()
		if err == nil {
			err = r.Follow(ctx, first.GetOpen(), l.request, l.respond)
		}
		cancel(err)
	}()
	return l
}

func (l *localLink) request() (*wire.FollowRequest, error) { return receive(l.ctx, l.requests) }

func (l *localLink) respond(out *wire.FollowResponse) error { return send(l.ctx, l.responses, out) }

func (l *localLink) Send(in *wire.FollowRequest) error { return send(l.ctx, l.requests, in) }

func (l *localLink) Recv() (*wire.FollowResponse, error) { return receive(l.ctx, l.responses) }

func (l *localLink) Close() { l.cancel(context.Canceled) }

func send[T any](ctx context.Context, c chan<- T, v T) error {
	select {
	case c <- v:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func receive[T any](ctx context.Context, c <-chan T) (v T, err error) {
	select {
	case v = <-c:
		return v, nil
	case <-ctx.Done():
		return v, context.Cause(ctx)
	}
}
