package service

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/resourcepb/resourcegrpc"
	"github.com/ashlar-dev/storage/service/registry"
)

// Server implements the resource service and the history service over a backend. All its methods are safe for concurrent use, through gRPC or
// directly. It does not modify or retain requests, and responses belong to the caller.
type Server struct {
	resourcegrpc.UnimplementedResourceServiceServer
	resourcegrpc.UnimplementedHistoryServiceServer

	backend storage.Backend
	types   atomic.Pointer[registry.Registry]
	opts    Options

	eventCache    *eventCache
	fencedCommits fencedCommits

	draining context.Context // canceled when streams must end
	drain    func()
}

// Options configures a Server.
type Options struct {
	// Authenticate returns the caller with a token, "" for none, in a tenancy whose units may be "*". The hooks of the types get the caller. Callers
	// get the text of an error that wraps ErrUnauthenticated; other errors are logged and reported as internal errors. If nil, every caller may do
	// everything.
	Authenticate func(ctx context.Context, token string, tenancy *resourcepb.Tenancy) (registry.Caller, error)
	// Tenancies reports which partitions and namespaces exist. If nil, every well-formed one exists.
	Tenancies Tenancies
	// Recheck is the interval at which a stream authenticates its caller again and checks that the caller may still list. 0 is 60 seconds.
	Recheck time.Duration
	// Audit gets each call that changes a resource or was refused, at its end, with the context of the call. It delays the answer of the call.
	Audit func(context.Context, *Mutation)
	// Author returns the name of a caller that is stored as the author of the versions that it writes. If nil, none is stored.
	Author func(registry.Caller) string
	// MaxList is the maximum size in bytes of a list without a limit; a larger one is refused, and can be read in pages. 0: unlimited.
	MaxList int
	// Logger gets errors that are hidden from callers. If nil, slog.Default() is used.
	Logger *slog.Logger
}

// Tenancies reports on the partitions and namespaces that resources can live in.
type Tenancies interface {
	// Exists reports whether the partition, and the namespace in it if one is set, exist. Empty units always exist.
	Exists(ctx context.Context, tenancy *resourcepb.Tenancy) (bool, error)
	// DeletionPending reports whether the partition or the namespace is marked for deletion. Nothing new may be written there.
	DeletionPending(ctx context.Context, tenancy *resourcepb.Tenancy) (bool, error)
}

// ErrUnauthenticated is wrapped by errors of Authenticate for an unknown token, or for a missing one if a token is needed.
var ErrUnauthenticated = errors.New("unauthenticated")

// defaultRecheck is the default of Options.Recheck.
const defaultRecheck = 60 * time.Second

// New returns a server of the types in r over b. The caller closes the backend after the last call has ended.
func New(b storage.Backend, r *registry.Registry, o *Options) *Server {
	s := &Server{backend: b, eventCache: newEventCache()}
	s.types.Store(r)
	s.draining, s.drain = context.WithCancel(context.Background())
	if o != nil {
		s.opts = *o
	}
	if s.opts.Recheck <= 0 {
		s.opts.Recheck = defaultRecheck
	}
	if s.opts.Logger == nil {
		s.opts.Logger = slog.Default()
	}
	if s.opts.Tenancies == nil {
		s.opts.Tenancies = allTenancies{}
	}
	if s.opts.Authenticate == nil {
		s.opts.Authenticate = func(context.Context, string, *resourcepb.Tenancy) (registry.Caller, error) { return allowAll{}, nil }
	}
	return s
}

// SetTypes replaces the types of the server. Running calls and open streams keep the old types.
func (s *Server) SetTypes(r *registry.Registry) { s.types.Store(r) }

// allTenancies implements Tenancies: every tenancy exists.
type allTenancies struct{}

func (allTenancies) Exists(context.Context, *resourcepb.Tenancy) (bool, error) { return true, nil }
func (allTenancies) DeletionPending(context.Context, *resourcepb.Tenancy) (bool, error) {
	return false, nil
}

// allowAll is a caller that may do everything.
type allowAll struct{}

func (allowAll) OperatorRead() error  { return nil }
func (allowAll) OperatorWrite() error { return nil }
