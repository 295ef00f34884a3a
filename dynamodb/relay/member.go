package relay

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"

	"github.com/oklog/ulid/v2"
	"go.opentelemetry.io/otel/attribute"
	"google.golang.org/grpc"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/dynamodb/internal/relays"
	"github.com/ashlar-dev/storage/telemetry"
)

// member is a handle's part in the relays of its store: a node, and a server and a candidate if it may be a relay.
type member struct {
	*node
	server *server // nil if the handle is never a relay
	stop   context.CancelFunc
	wg     sync.WaitGroup
}

func init() {
	relays.Register(func(h relays.Host) (relays.Node, error) {
		m, err := start(h)
		if err != nil {
			return nil, err // not m, a nil pointer of a concrete type
		}
		return m, nil
	})
}

// start starts a member.
func start(h relays.Host) (*member, error) {
	id, err := newIdentity(h.Options)
	if err != nil {
		return nil, err
	}
	n := &node{host: h, process: ulid.Make().String(), directory: &directory{open: h.OpenDirectory}, kick: make(chan struct{}, 1)}
	n.turn.Store(rand.Int64N(2))
	n.subscriptions = h.Recorder.Series(telemetry.RelaySubscriptions)
	n.peers = &connections{id: id, process: n.process, open: map[peer]*grpc.ClientConn{}}
	if h.Listen == "" {
		if h.Advertise != "" {
			return nil, fmt.Errorf("%w: relay-advertise requires relay-listen", storage.ErrInvalid)
		}
		return &member{node: n}, nil
	}
	s, err := serve(h.Listen, n.process, id, n.kick)
	if err != nil {
		return nil, err
	}
	advertised, err := advertisedAddress(h.Options, s.address)
	if err != nil {
		s.grpc.Stop()
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	m := &member{node: n, server: s, stop: cancel}
	self := record{process: n.process, address: advertised, keyHash: id.keyHash, token: id.tokens[0]}
	if id.fileToken {
		self.token = ""
	}
	h.Recorder.Observe(telemetry.RelaySubscribers, func(observe func(float64, ...attribute.KeyValue)) {
		if s.relay.Load() != nil {
			observe(float64(s.followers.Load()))
		}
	})
	m.wg.Go(func() { (&candidate{node: n, server: s, self: self}).run(ctx) })
	return m, nil
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

// Close ends the member.
func (m *member) Close() {
	if m.server != nil {
		m.stop()
		m.wg.Wait()
		m.server.grpc.Stop()
	}
	m.peers.keep(nil)
	m.directory.close()
}
