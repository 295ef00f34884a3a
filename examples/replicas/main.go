// Command replicas runs a controller that keeps as many pods as a replica set names. It creates a set, and prints its pods after each change.
// docs/controllers.md contains parts of this program; a test compares the two.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"sync"

	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/controller"
	"github.com/ashlar-dev/storage/controller/dependency"
	_ "github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/resourcepb/resourcegrpc"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/reaper"
	"github.com/ashlar-dev/storage/service/registry"
	"github.com/ashlar-dev/storage/typed"
)

// The types. A program would declare messages of its own instead of a number and a text.
var (
	setType = &resourcepb.Type{Group: "shop", GroupVersion: "v1", Kind: "ReplicaSet"}
	podType = &resourcepb.Type{Group: "shop", GroupVersion: "v1", Kind: "Pod"}

	sets = controller.NewKind[*wrapperspb.UInt32Value](setType)
	pods = controller.NewKind[*wrapperspb.StringValue](podType)
)

// replicaSets describes the controller: it manages sets, and a change of a pod concerns the pod's owner.
func replicaSets() *controller.Controller {
	return controller.NewController("replica-sets", setType).
		WithWatch(podType, dependency.MapOwner).
		WithReconciler(controller.Typed(scale)).
		WithWorkers(4)
}

// scale creates the missing pods of a set and deletes the others. It reads the state as it is, whatever has changed.
func scale(ctx context.Context, rt controller.Runtime, req controller.TypedRequest[*wrapperspb.UInt32Value]) error {
	set := req.Object
	if set == nil || controller.Deleting(set) {
		return nil // the reaper deletes its pods
	}
	missing := map[string]bool{}
	for i := range set.Data.Value {
		missing[fmt.Sprintf("%s-%d", set.ID.Name, i)] = true
	}
	owned, err := pods.Owned(rt, set.ID)
	if err != nil {
		return err
	}
	for _, pod := range owned {
		if !missing[pod.ID.Name] {
			if err := pods.Delete(ctx, rt, pod.ID); err != nil {
				return err
			}
		}
		delete(missing, pod.ID.Name)
	}
	for name := range missing {
		pod := &typed.Object[*wrapperspb.StringValue]{ID: pods.ID(set.ID.Tenancy, name), Owner: set.ID, Data: wrapperspb.String("nginx")}
		if _, err := pods.Apply(ctx, rt, pod); err != nil {
			return err
		}
	}
	return sets.SetStatus(ctx, rt, set, "replica-sets", controller.True("Scaled", "AsWanted"))
}

func main() {
	if err := run(context.Background(), "mem://", os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, url string, out io.Writer) error {
	backend, err := storage.Open(ctx, url)
	if err != nil {
		return err
	}
	defer backend.Close()
	server := service.New(backend, registry.NewOpen(registry.Type{}), nil)
	m := controller.NewManager(server.Client(), &controller.Options{Leases: backend})
	if err := m.Register(replicaSets()); err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	var programs sync.WaitGroup
	defer programs.Wait()
	defer stop()
	programs.Go(func() { _ = reaper.New(server, nil).Run(running) })
	programs.Go(func() { _ = m.Run(running) })

	web := &resourcepb.ID{Type: setType, Name: "web"}
	for _, replicas := range []uint32{3, 1} {
		if err := apply(ctx, server.Client(), web, replicas); err != nil {
			return err
		}
		listed, err := server.Client().List(ctx, &resourcepb.ListRequest{Type: podType, Tenancy: &resourcepb.Tenancy{}})
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%d replicas, %d pods\n", replicas, len(listed.GetResources()))
	}
	return nil
}

// apply writes a set, and waits until the status has the generation of the write.
func apply(ctx context.Context, client resourcegrpc.ResourceServiceClient, id *resourcepb.ID, replicas uint32) error {
	data, err := anypb.New(wrapperspb.UInt32(replicas))
	if err != nil {
		return err
	}
	written, err := client.Write(ctx, &resourcepb.WriteRequest{Resource: &resourcepb.Resource{Id: id, Data: data}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx) // ends the stream
	defer cancel()
	stream, err := client.WatchList(ctx, &resourcepb.WatchListRequest{Type: setType, Tenancy: &resourcepb.Tenancy{}, NamePrefix: id.GetName()})
	if err != nil {
		return err
	}
	for {
		event, err := stream.Recv()
		if err != nil {
			return err
		}
		status := event.GetUpsert().GetResource().GetStatus()["replica-sets"]
		if status.GetObservedGeneration() == written.GetResource().GetGeneration() {
			return nil
		}
	}
}
