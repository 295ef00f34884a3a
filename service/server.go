package service

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/resourcepb/resourcegrpc"
	"github.com/ashlar-dev/storage/service/registry"
)

// Server is the resource service over a backend, and the history service. All its methods may be called from any number of goroutines, through gRPC or directly;
// requests are not changed and not kept, and answers belong to the caller.
type Server struct {
	resourcegrpc.UnimplementedResourceServiceServer
	resourcegrpc.UnimplementedHistoryServiceServer

	backend storage.Backend
	types   *registry.Registry
	opts    Options

	eventCache *eventCache

	draining context.Context // over when streams have to end
	drain    func()
}

// Options are the options of a Server.
type Options struct {
	// Authenticate returns who calls with a token, "" for none, and means a tenancy, each unit of which may be "*". What it returns is
	// asked by the hooks of the types. An error that wraps ErrUnauthenticated is told to the caller; others are logged, and told as an
	// internal error. Nil: everybody may do everything.
	Authenticate func(ctx context.Context, token string, tenancy *resourcepb.Tenancy) (registry.Caller, error)
	// Tenancies knows which partitions and namespaces exist. Nil: every well-formed one does.
	Tenancies Tenancies
	// Recheck is the time after which a stream asks Authenticate again whether its caller may still see what it sees. 0 is 60 seconds.
	Recheck time.Duration
	// Logger is told of errors that callers are not told of. Nil: slog.Default().
	Logger *slog.Logger
}

// Tenancies knows the partitions and namespaces that resources can live in.
type Tenancies interface {
	// Exists reports whether the partition, and the namespace in it where there is one, exist. Empty units always do.
	Exists(ctx context.Context, tenancy *resourcepb.Tenancy) (bool, error)
	// DeletionPending reports whether the partition or the namespace is marked for deletion, so that nothing new may be written there.
	DeletionPending(ctx context.Context, tenancy *resourcepb.Tenancy) (bool, error)
}

// ErrUnauthenticated is what Authenticate's error wraps if a token is not known, or none came where one is needed.
var ErrUnauthenticated = errors.New("unauthenticated")

// defaultRecheck is the default of Options.Recheck.
const defaultRecheck = 60 * time.Second

// New returns the service of the types in r over b. The backend stays the caller's: close it after the last call has ended.
func New(b storage.Backend, r *registry.Registry, o *Options) *Server {
	s := &Server{backend: b, types: r, eventCache: newEventCache()}
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

// allTenancies are the tenancies of a service that knows none: all exist.
type allTenancies struct{}

func (allTenancies) Exists(context.Context, *resourcepb.Tenancy) (bool, error) { return true, nil }
func (allTenancies) DeletionPending(context.Context, *resourcepb.Tenancy) (bool, error) {
	return false, nil
}

// allowAll is a caller who may do everything.
type allowAll struct{}

func (allowAll) OperatorRead() error  { return nil }
func (allowAll) OperatorWrite() error { return nil }
