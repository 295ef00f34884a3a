package relay

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"
	"google.golang.org/grpc"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/dynamodb/internal/relays"
	"github.com/ashlar-dev/storage/dynamodb/internal/streams"
)

// node is a handle's part in the relays of its store.
type node struct {
	host      relays.Host
	process   string
	directory *directory
	peers     *connections
	server    *server // nil if the handle is never a relay
	turn      atomic.Int64
	kick      chan struct{}                 // makes the candidate look for relays
	local     atomic.Pointer[streams.Relay] // while the handle reads the stream

	stop context.CancelFunc
	done sync.WaitGroup
}

func init() {
	relays.Register(func(h relays.Host) (relays.Node, error) { return start(h) })
}

// start starts a node.
func start(h relays.Host) (*node, error) {
	id, err := newIdentity(h.Options)
	if err != nil {
		return nil, err
	}
	n := &node{host: h, process: ulid.Make().String(), directory: &directory{open: h.OpenDirectory}, kick: make(chan struct{}, 1)}
	n.turn.Store(rand.Int64N(2))
	if n.host.TTL == 0 {
		n.host.TTL = 15 * time.Second
	}
	n.peers = &connections{id: id, process: n.process, open: map[peer]*grpc.ClientConn{}}
	if h.Listen == "" {
		if h.Advertise != "" {
			return nil, fmt.Errorf("%w: relay-advertise requires relay-listen", storage.ErrInvalid)
		}
		return n, nil
	}
	if n.server, err = serve(h.Listen, n.process, id); err != nil {
		return nil, err
	}
	advertised, err := advertisedAddress(h.Options, n.server.address)
	if err != nil {
		n.server.grpc.Stop()
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	n.stop = cancel
	self := record{process: n.process, address: advertised, keyHash: id.keyHash, token: id.token}
	if id.fileToken {
		self.token = ""
	}
	n.done.Go(func() { (&candidate{node: n, self: self}).run(ctx) })
	return n, nil
}

// advertisedAddress returns the address that other processes use.
func advertisedAddress(o relays.Options, listening net.Addr) (string, error) {
	_, port, err := net.SplitHostPort(listening.String())
	if err != nil {
		return "", err
	}
	if o.Advertise != "" {
		host, given, err := net.SplitHostPort(o.Advertise)
		if err != nil || host == "" {
			return "", fmt.Errorf("%w: relay-advertise: expected HOST:PORT", storage.ErrInvalid)
		}
		if given == "0" {
			given = port
		}
		return net.JoinHostPort(host, given), nil
	}
	host, _, _ := net.SplitHostPort(o.Listen)
	ip := net.ParseIP(host)
	if host == "" || host == "localhost" || ip != nil && (ip.IsLoopback() || ip.IsUnspecified()) {
		return "", fmt.Errorf("%w: relay-listen %q is no address that other machines reach: set relay-advertise", storage.ErrInvalid, o.Listen)
	}
	return net.JoinHostPort(host, port), nil
}

// Close ends the node.
func (n *node) Close() {
	if n.stop != nil {
		n.stop()
		n.done.Wait()
		n.server.grpc.Stop()
	}
	n.peers.keep(nil)
	n.directory.close()
}
