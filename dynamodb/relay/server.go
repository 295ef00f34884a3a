package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/dynamodb/internal/streams"
	"github.com/ashlar-dev/storage/internal/wire"
	"github.com/ashlar-dev/storage/internal/wire/wiregrpc"
)

// server serves other processes: with probes always, with changes while the process is a relay.
type server struct {
	wiregrpc.UnimplementedWatchesServer
	id      *identity
	process string
	kick    chan<- struct{} // makes the candidate look for relays
	grpc    *grpc.Server
	address net.Addr

	relay     atomic.Pointer[streams.Relay] // nil unless the process is a published relay
	followers atomic.Int64

	mu        sync.Mutex
	lastProbe time.Time     // of the last probe by another process
	probeCh   chan struct{} // closed by the next probe
}

// maxSubscribers is the maximum number of subscribers of a relay.
const maxSubscribers = 1000

const (
	// maxMessage bounds a message of the server: a page of history, and a tree of thousands of shards. maxRequest bounds a message of a client: two
	// positions of thousands of shards.
	maxMessage, maxRequest = 32 << 20, 4 << 20
	// maxHeaders bounds the headers of a call, and maxCalls the concurrent calls of a connection.
	maxHeaders, maxCalls = 16 << 10, 64
)

// serve listens on an address.
func serve(address, process string, id *identity, kick chan<- struct{}) (*server, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("relay-listen: %w", err)
	}
	s := &server{id: id, process: process, kick: kick, address: listener.Addr(), probeCh: make(chan struct{})}
	s.grpc = grpc.NewServer(
		grpc.Creds(credentials.NewTLS(id.serverTLS())),
		grpc.InTapHandle(s.authenticate),
		grpc.MaxRecvMsgSize(maxRequest), grpc.MaxSendMsgSize(maxMessage), grpc.MaxHeaderListSize(maxHeaders),
		grpc.MaxConcurrentStreams(maxCalls), grpc.ConnectionTimeout(pingTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingAfter, Timeout: pingTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingAfter / 2, PermitWithoutStream: true}),
	)
	wiregrpc.RegisterWatchesServer(s.grpc, s)
	go func() { _ = s.grpc.Serve(listener) }()
	return s, nil
}

// pingAfter is how long a connection is idle before a ping, pingTimeout how long the answer may take.
const pingAfter, pingTimeout = 10 * time.Second, 5 * time.Second

// authenticate refuses calls without the token before their messages are read.
func (s *server) authenticate(ctx context.Context, _ *tap.Info) (context.Context, error) {
	sent := metadata.ValueFromIncomingContext(ctx, "authorization")
	if len(sent) != 1 || !s.id.accepts(sent[0]) {
		return nil, status.Error(codes.Unauthenticated, "the token is not the relay's")
	}
	return ctx, nil
}

// bearer sends a token.
type bearer string

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": string(b)}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (bearer) RequireTransportSecurity() bool { return true }

// Follow implements wiregrpc.WatchesServer.
func (s *server) Follow(stream grpc.BidiStreamingServer[wire.FollowRequest, wire.FollowResponse]) error {
	relay := s.relay.Load()
	if relay == nil {
		return errNoRelay
	}
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	if s.followers.Add(1) > maxSubscribers {
		s.followers.Add(-1)
		return status.Errorf(codes.ResourceExhausted, "the relay has %d subscribers", maxSubscribers)
	}
	defer s.followers.Add(-1)
	return statusOf(relay.Follow(stream.Context(), first.GetOpen(), stream.Recv, stream.Send))
}

var errNoRelay = status.Error(codes.Unavailable, "the process is no relay")

// Page implements wiregrpc.WatchesServer.
func (s *server) Page(ctx context.Context, in *wire.PageRequest) (*wire.PageResponse, error) {
	relay := s.relay.Load()
	if relay == nil {
		return nil, errNoRelay
	}
	out, err := relay.Page(ctx, in)
	return out, statusOf(err)
}

// Probe implements wiregrpc.WatchesServer.
func (s *server) Probe(_ context.Context, in *wire.ProbeRequest) (*wire.ProbeResponse, error) {
	if in.GetProcess() != s.process {
		s.mu.Lock()
		s.lastProbe = time.Now()
		close(s.probeCh)
		s.probeCh = make(chan struct{})
		s.mu.Unlock()
	}
	if in.GetWanted() {
		select {
		case s.kick <- struct{}{}:
		default:
		}
	}
	return &wire.ProbeResponse{Process: s.process}, nil
}

// probeLifetime is how long a probe counts.
const probeLifetime = time.Minute

// isReachable reports whether another process has reached this one recently, and returns a channel that the next probe closes.
func (s *server) isReachable() (bool, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.lastProbe.IsZero() && time.Since(s.lastProbe) < probeLifetime || s.followers.Load() > 0, s.probeCh
}

// statusOf converts an error of package streams into a status.
func statusOf(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, streams.ErrIdentity):
		return status.Error(codes.FailedPrecondition, err.Error())
	case errors.Is(err, storage.ErrCompacted):
		return status.Error(codes.OutOfRange, err.Error())
	case errors.Is(err, storage.ErrInvalid):
		return status.Error(codes.InvalidArgument, err.Error())
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.Error(codes.Unavailable, err.Error())
}

// errorOf is the inverse of statusOf.
func errorOf(err error) error {
	switch status.Code(err) {
	case codes.OK:
		return nil
	case codes.FailedPrecondition:
		return fmt.Errorf("%w: %w", streams.ErrIdentity, err)
	case codes.OutOfRange:
		return fmt.Errorf("%w: %w", storage.ErrCompacted, err)
	}
	return err
}
