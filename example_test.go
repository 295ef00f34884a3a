package storage_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ashlar-dev/storage"
	_ "github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
)

func service(name string, replicas float64) *resourcepb.Resource {
	data, err := anypb.New(&structpb.Struct{Fields: map[string]*structpb.Value{"replicas": structpb.NewNumberValue(replicas)}})
	if err != nil {
		log.Fatal(err)
	}
	return &resourcepb.Resource{
		Id: &resourcepb.ID{
			Uid:     "01HZX3V6Q8T5W9Y2B4C7D0EFGH", // fixed for the example: a program makes a new ULID for each new resource
			Name:    name,
			Type:    &resourcepb.Type{Group: "demo", GroupVersion: "v1", Kind: "Service"},
			Tenancy: &resourcepb.Tenancy{Partition: "default", Namespace: "shop"},
		},
		Data: data,
	}
}

// Create a resource, change it, and try to write it at an outdated version.
func Example() {
	ctx := context.Background()
	backend, err := storage.Open(ctx, "mem://")
	if err != nil {
		log.Fatal(err)
	}
	defer backend.Close()

	created, err := backend.WriteCAS(ctx, service("cart", 1))
	if err != nil {
		log.Fatal(err)
	}
	change := service("cart", 2)
	change.Version = created.Version
	if _, err := backend.WriteCAS(ctx, change); err != nil {
		log.Fatal(err)
	}
	_, err = backend.WriteCAS(ctx, change) // at the previous version
	fmt.Println("the second write is refused:", errors.Is(err, storage.ErrCASFailure))

	stored, err := backend.Read(ctx, storage.StrongConsistency, created.Id)
	if err != nil {
		log.Fatal(err)
	}
	var content structpb.Struct
	if err := stored.Data.UnmarshalTo(&content); err != nil {
		log.Fatal(err)
	}
	fmt.Println("replicas:", content.Fields["replicas"].GetNumberValue())
	// Output:
	// the second write is refused: true
	// replicas: 2
}

// Watch a type in all namespaces: first the snapshot, then the changes.
func ExampleBackend_watchList() {
	ctx := context.Background()
	backend, err := storage.Open(ctx, "mem://")
	if err != nil {
		log.Fatal(err)
	}
	defer backend.Close()
	cart, err := backend.WriteCAS(ctx, service("cart", 1))
	if err != nil {
		log.Fatal(err)
	}

	watch, err := backend.WatchList(ctx, storage.UnversionedType{Group: "demo", Kind: "Service"},
		&resourcepb.Tenancy{Partition: "default", Namespace: storage.Wildcard}, "")
	if err != nil {
		log.Fatal(err)
	}
	defer watch.Close()
	if err := backend.DeleteCAS(ctx, cart.Id, cart.Version); err != nil {
		log.Fatal(err)
	}
	for range 3 {
		event, err := watch.Next(ctx)
		if err != nil {
			log.Fatal(err)
		}
		switch {
		case event.GetUpsert() != nil:
			fmt.Println("stored:", event.GetUpsert().Resource.Id.Name)
		case event.GetEndOfSnapshot() != nil:
			fmt.Println("end of snapshot")
		case event.GetDelete() != nil:
			fmt.Println("deleted:", event.GetDelete().Resource.Id.Name)
		}
	}
	// Output:
	// stored: cart
	// end of snapshot
	// deleted: cart
}

// Find a capability, and list a store of any size in pages.
func ExampleAs() {
	ctx := context.Background()
	backend, err := storage.Open(ctx, "mem://")
	if err != nil {
		log.Fatal(err)
	}
	defer backend.Close()
	for _, name := range []string{"cart", "checkout", "currency"} {
		if _, err := backend.WriteCAS(ctx, service(name, 1)); err != nil {
			log.Fatal(err)
		}
	}

	pager, ok := storage.As[storage.Pager](backend)
	if !ok {
		log.Fatal("this backend does not list in pages")
	}
	options := storage.ListOptions{Limit: 2}
	for {
		page, err := pager.ListPage(ctx, storage.UnversionedType{Group: "demo", Kind: "Service"},
			&resourcepb.Tenancy{Partition: "default", Namespace: "shop"}, "c", options)
		if err != nil {
			log.Fatal(err)
		}
		for _, res := range page.Resources {
			fmt.Println(res.Id.Name)
		}
		if page.Continue == "" {
			break
		}
		options.Continue = page.Continue
	}
	// Output:
	// cart
	// checkout
	// currency
}
