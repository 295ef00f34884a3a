package etcdserver

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/lease"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Options configures a Server.
type Options struct {
	// ProgressInterval is the interval of progress notifications to quiet watches that request them. 0 means 5 seconds.
	ProgressInterval time.Duration
	// Logger receives events that no caller receives. Nil means slog.Default.
	Logger *slog.Logger
}

const defaultProgressInterval = 5 * time.Second

// Server serves a store through etcd's API. It implements the servers of etcd's KV, Watch, Lease and Maintenance services, so it can also
// be used without a network.
type Server struct {
	pb.UnimplementedKVServer
	pb.UnimplementedWatchServer
	pb.UnimplementedLeaseServer
	pb.UnimplementedMaintenanceServer
	pb.UnimplementedAuthServer

	backend  storage.Backend
	history  history.Historian
	commits  storage.Transactor
	leases   *lease.Keeper
	opts     Options
	keyLocks keyLocks

	closing sync.Once
	stopCh  chan struct{} // closed when the server ends
}

// New returns a server for the keys in a store. The caller keeps ownership of the backend; Close ends the server. New fails with
// [storage.ErrInvalid] if the backend does not number its changes, as DynamoDB does not.
func New(b storage.Backend, o *Options) (*Server, error) {
	s := &Server{backend: b, stopCh: make(chan struct{})}
	if o != nil {
		s.opts = *o
	}
	if s.opts.ProgressInterval <= 0 {
		s.opts.ProgressInterval = defaultProgressInterval
	}
	if s.opts.Logger == nil {
		s.opts.Logger = slog.Default()
	}
	var ok bool
	if s.history, ok = storage.As[history.Historian](b); !ok {
		return nil, fmt.Errorf("%w: etcd's API needs a store that numbers its changes, and this store does not", storage.ErrInvalid)
	}
	if s.commits, ok = storage.As[storage.Transactor](b); !ok {
		return nil, fmt.Errorf("%w: etcd's API needs a store with transactions", storage.ErrInvalid)
	}
	var err error
	if s.leases, err = lease.NewKeeper(b, leaseTenancy); err != nil {
		return nil, err
	}
	return s, nil
}

// Close ends the watches, and stops expiring leases. The backend stays open.
func (s *Server) Close() {
	s.closing.Do(func() {
		close(s.stopCh)
		s.leases.Close()
	})
}

// member is the id of the cluster, of its only member and of its leader. All servers of a store report the same id.
const member = 1

func header(revision int64) *pb.ResponseHeader {
	return &pb.ResponseHeader{ClusterId: member, MemberId: member, RaftTerm: 1, Revision: revision}
}

// header returns the header of a response that is not tied to a revision.
func (s *Server) header(ctx context.Context) (*pb.ResponseHeader, error) {
	_, newest, err := s.history.Revisions(ctx)
	if err != nil {
		return nil, toStatus(ctx, err)
	}
	return header(newest), nil
}

// leaseTenancy contains the leases of a store. The name of a lease is its number in hexadecimal.
var leaseTenancy = &resourcepb.Tenancy{Partition: "etcd"}
