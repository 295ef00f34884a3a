// Command catalog serves two resource types of its own in one process: services, and the endpoints that they own. It demonstrates
// hooks that set defaults and validate writes, authorization, owners that the service completes, and the deletion of a deleted
// service's endpoints.
//
// Its client needs no connection. To serve the same types to other processes, register the server with a grpc.Server; ashlar serve
// does that for types from files, without a program.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/examples/catalog/catalogpb"
	_ "github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/resourcepb/resourcegrpc"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/reaper"
	"github.com/ashlar-dev/storage/service/registry"
)

var (
	serviceType  = &resourcepb.Type{Group: "catalog", GroupVersion: "v1", Kind: "Service"}
	endpointType = &resourcepb.Type{Group: "catalog", GroupVersion: "v1", Kind: "Endpoint"}
)

// user is the caller. Hooks access it by a type assertion.
type user struct{ name string }

// OperatorRead permits every caller to read.
func (user) OperatorRead() error { return nil }

// OperatorWrite permits only the platform team to write.
func (u user) OperatorWrite() error {
	if u.name != "platform" {
		return fmt.Errorf("%w: %s is not in the platform team", registry.ErrDenied, u.name)
	}
	return nil
}

func types() (*registry.Registry, error) {
	return registry.New(
		registry.Type{
			Type: serviceType, Proto: &catalogpb.Service{}, Scope: registry.ScopeNamespace,
			Mutate: registry.Decoded(func(r *registry.Resource[*catalogpb.Service]) error {
				if r.Data.GetProtocol() == "" {
					r.Data.Protocol = "tcp"
				}
				return nil
			}),
			Validate: registry.Decoded(func(r *registry.Resource[*catalogpb.Service]) error {
				if p := r.Data.GetPort(); p < 1 || p > 65535 {
					return fmt.Errorf("data.port is %d, expected 1 to 65535", p)
				}
				return nil
			}),
		},
		registry.Type{
			Type: endpointType, Proto: &catalogpb.Endpoint{}, Scope: registry.ScopeNamespace,
			Validate: func(r *resourcepb.Resource) error {
				if r.GetOwner().GetType().GetKind() != "Service" {
					return errors.New("an endpoint needs a service as its owner")
				}
				return nil
			},
			// Endpoints are written by the machines themselves.
			MayWrite: func(c registry.Caller, _ *resourcepb.Resource) error {
				if c.(user).name == "" {
					return registry.ErrDenied
				}
				return nil
			},
		},
	)
}

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer) (err error) {
	backend, err := storage.Open(ctx, "mem://")
	if err != nil {
		return err
	}
	defer backend.Close()
	registered, err := types()
	if err != nil {
		return err
	}
	server := service.New(backend, registered, &service.Options{
		// A real program would look up the token: compare it in constant time, and return service.ErrUnauthenticated for unknown
		// ones.
		Authenticate: func(_ context.Context, token string, _ *resourcepb.Tenancy) (registry.Caller, error) {
			return user{name: token}, nil
		},
	})
	reaping, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- reaper.New(server, nil).Run(reaping) }()
	defer func() {
		stop()
		if ended := <-ended; !errors.Is(ended, context.Canceled) {
			err = errors.Join(err, ended)
		}
	}()

	return tour(ctx, server.Client(), out)
}

// tour writes a service and its endpoints, and deletes the service.
func tour(ctx context.Context, c resourcegrpc.ResourceServiceClient, out io.Writer) error {
	platform := metadata.AppendToOutgoingContext(ctx, "x-consul-token", "platform")
	machine := metadata.AppendToOutgoingContext(ctx, "x-consul-token", "machine-7")

	web := &resourcepb.ID{Type: serviceType, Name: "web", Tenancy: &resourcepb.Tenancy{Partition: "default", Namespace: "shop"}}
	_, err := c.Write(machine, request(web, nil, &catalogpb.Service{Port: 8080}))
	fmt.Fprintln(out, "a machine writes a service:", status.Code(err))
	_, err = c.Write(platform, request(web, nil, &catalogpb.Service{}))
	fmt.Fprintln(out, "the platform omits the port:", status.Convert(err).Message())
	written, err := c.Write(platform, request(web, nil, &catalogpb.Service{Port: 8080}))
	if err != nil {
		return err
	}
	var stored catalogpb.Service
	if err := written.GetResource().GetData().UnmarshalTo(&stored); err != nil {
		return err
	}
	fmt.Fprintln(out, "stored with the protocol", stored.GetProtocol())

	watching, stop := context.WithCancel(ctx)
	defer stop()
	endpoints, err := c.WatchList(watching, &resourcepb.WatchListRequest{Type: endpointType})
	if err != nil {
		return err
	}
	for i := range 2 {
		id := &resourcepb.ID{Type: endpointType, Name: fmt.Sprintf("web-%d", i), Tenancy: web.Tenancy}
		if _, err := c.Write(machine, request(id, web, &catalogpb.Endpoint{Address: fmt.Sprintf("10.0.0.%d", i+1)})); err != nil {
			return err
		}
	}
	owned, err := c.ListByOwner(ctx, &resourcepb.ListByOwnerRequest{Owner: written.GetResource().GetId()})
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "the service owns", len(owned.GetResources()), "endpoints")

	if _, err := c.Delete(platform, &resourcepb.DeleteRequest{Id: web}); err != nil {
		return err
	}
	for gone := 0; gone < 2; {
		event, err := endpoints.Recv()
		if err != nil {
			return err
		}
		if event.GetDelete() != nil {
			gone++
		}
	}
	fmt.Fprintln(out, "the service was deleted, and its endpoints after it")
	return nil
}

// request returns a request to write a resource. The service completes the owner's uid.
func request(id, owner *resourcepb.ID, data proto.Message) *resourcepb.WriteRequest {
	payload, err := anypb.New(data)
	if err != nil {
		panic(err) // a message of this program always encodes
	}
	return &resourcepb.WriteRequest{Resource: &resourcepb.Resource{Id: id, Owner: owner, Data: payload}}
}
