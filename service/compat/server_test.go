package compat

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"testing"
	"time"

	catalog "github.com/hashicorp/consul/proto-public/pbcatalog/v2beta1"
	"github.com/hashicorp/consul/proto-public/pbresource"
	tenancy "github.com/hashicorp/consul/proto-public/pbtenancy/v2beta1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage"
	_ "github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/compat/foopb"
	"github.com/ashlar-dev/storage/service/registry"
	_ "github.com/ashlar-dev/storage/sqlite"
)

// stores are the stores of the tests; each function returns the URL of a new one.
var stores = map[string]func(testing.TB) string{
	"memory": func(testing.TB) string { return "mem://" },
	"sqlite": func(t testing.TB) string { return "sqlite://" + filepath.Join(t.TempDir(), "store.db") },
}

// onEachStore runs a test against a server over each kind of store.
func onEachStore(t *testing.T, test func(*testing.T, *server)) {
	t.Parallel()
	for name, url := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, serve(t, url(t)))
		})
	}
}

// server is a published client and the server that it calls.
type server struct {
	pbresource.ResourceServiceClient

	cc        *grpc.ClientConn
	backend   storage.Backend
	resources *service.Server
}

// serve serves a store on a loopback port until the test ends.
func serve(t *testing.T, url string) *server {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	backend, err := storage.Open(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	return serveBackend(t, backend)
}

// serveBackend serves a backend and closes it at the end of the test.
func serveBackend(t *testing.T, backend storage.Backend) *server {
	t.Helper()
	types, err := types()
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	resources := service.New(backend, types, &service.Options{Authenticate: authenticate, Tenancies: tenancies{}})
	resources.Register(s)
	resources.RegisterReflection(s)
	service.RegisterHealth(s)
	served := make(chan error, 1)
	go func() { served <- s.Serve(listener) }()
	cc, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cc.Close()
		s.Stop()
		if err := errors.Join(<-served, backend.Close()); err != nil {
			t.Error(err)
		}
	})
	return &server{ResourceServiceClient: pbresource.NewResourceServiceClient(cc), cc: cc, backend: backend, resources: resources}
}

// limited returns a context for all calls of a test.
func limited(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

var (
	serviceType   = &pbresource.Type{Group: "catalog", GroupVersion: "v2beta1", Kind: "Service"}
	serviceV1     = &pbresource.Type{Group: "catalog", GroupVersion: "v1", Kind: "Service"}
	workloadType  = &pbresource.Type{Group: "catalog", GroupVersion: "v2beta1", Kind: "Workload"}
	namespaceType = tenancy.NamespaceType
	partitionType = tenancy.PartitionType
	tombstoneType = &pbresource.Type{Group: "internal", GroupVersion: "v1", Kind: "Tombstone"}
)

// types are the types of the server, with payloads of the published module, whose schemas declare the scope. One type has hooks.
func types() (*registry.Registry, error) {
	named := func(t *pbresource.Type) *resourcepb.Type {
		return &resourcepb.Type{Group: t.GetGroup(), GroupVersion: t.GetGroupVersion(), Kind: t.GetKind()}
	}
	return registry.New(
		registry.Type{Type: named(serviceType), Proto: &catalog.Service{}},
		registry.Type{Type: named(serviceV1), Proto: &wrapperspb.StringValue{}, Scope: registry.ScopeNamespace},
		registry.Type{Type: named(namespaceType), Proto: &tenancy.Namespace{}},
		registry.Type{Type: named(partitionType), Proto: &tenancy.Partition{}},
		registry.Type{Type: foopb.BarType, Proto: &foopb.Bar{}, Scope: registry.ScopeNamespace},
		registry.Type{Type: foopb.FooType, Proto: &foopb.Foo{}, Scope: registry.ScopeNamespace},
		registry.Type{
			Type: named(workloadType), Proto: &catalog.Workload{},
			Mutate: registry.Decoded(func(w *registry.Resource[*catalog.Workload]) error {
				if w.Data.GetIdentity() == "none" {
					return errors.New("no identity to be had")
				}
				if w.Data.GetIdentity() == "" {
					w.Data.Identity = "default"
				}
				return nil
			}),
			Validate: registry.Decoded(func(w *registry.Resource[*catalog.Workload]) error {
				if w.Data.GetNodeName() == "" {
					return errors.New("node_name is required")
				}
				return nil
			}),
			MayRead: func(c registry.Caller, _ *resourcepb.ID, res *resourcepb.Resource) error {
				if res == nil {
					return registry.ErrNeedResource
				}
				if res.GetMetadata()["secret"] != "" {
					return c.OperatorWrite()
				}
				return c.OperatorRead()
			},
		},
	)
}

// The tokens of callers with limited permissions. Callers with another token, or none, may do everything.
const (
	readerToken  = "reader"  // may read
	nobodyToken  = "nobody"  // may do nothing
	unknownToken = "unknown" // is unknown
	brokenToken  = "broken"  // makes authentication fail
)

// The error texts of denied calls.
const (
	mayNotRead  = "permission denied: token lacks operator:read"
	mayNotWrite = "permission denied: token lacks operator:write"
)

// as returns a context whose calls carry a token as this client sends it.
func as(ctx context.Context, token string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "x-consul-token", token)
}

// caller is the caller with a token.
type caller string

func (c caller) OperatorRead() error {
	if c == nobodyToken {
		return fmt.Errorf("%w: token lacks operator:read", registry.ErrDenied)
	}
	return nil
}

func (c caller) OperatorWrite() error {
	if c == nobodyToken || c == readerToken {
		return fmt.Errorf("%w: token lacks operator:write", registry.ErrDenied)
	}
	return nil
}

func authenticate(_ context.Context, token string, _ *resourcepb.Tenancy) (registry.Caller, error) {
	switch token {
	case unknownToken:
		return nil, fmt.Errorf("%w: the token is not known", service.ErrUnauthenticated)
	case brokenToken:
		return nil, errors.New("the directory of tokens does not answer")
	}
	return caller(token), nil
}

// tenancies reports a partition and a namespace "missing" as absent, and "leaving" as marked for deletion.
type tenancies struct{}

func (tenancies) Exists(_ context.Context, t *resourcepb.Tenancy) (bool, error) {
	return t.GetPartition() != "missing" && t.GetNamespace() != "missing", nil
}

func (tenancies) DeletionPending(_ context.Context, t *resourcepb.Tenancy) (bool, error) {
	return t.GetPartition() == "leaving" || t.GetNamespace() == "leaving", nil
}
