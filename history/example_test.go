package history_test

import (
	"context"
	"fmt"
	"log"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/history"
	_ "github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Read a store at an earlier revision, and follow the changes since then.
func ExampleHistorian() {
	ctx := context.Background()
	backend, err := storage.Open(ctx, "mem://")
	if err != nil {
		log.Fatal(err)
	}
	defer backend.Close()
	cart, err := backend.WriteCAS(ctx, &resourcepb.Resource{Id: &resourcepb.ID{
		Uid:     "01HZX3V6Q8T5W9Y2B4C7D0EFGH", // fixed for the example: a program makes a new ULID for each new resource
		Name:    "cart",
		Type:    &resourcepb.Type{Group: "demo", GroupVersion: "v1", Kind: "Service"},
		Tenancy: &resourcepb.Tenancy{Partition: "default", Namespace: "shop"},
	}})
	if err != nil {
		log.Fatal(err)
	}

	historian, ok := storage.As[history.Historian](backend)
	if !ok {
		log.Fatal("this backend keeps no history")
	}
	_, before, err := historian.Revisions(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if err := backend.DeleteCAS(ctx, cart.Id, cart.Version); err != nil {
		log.Fatal(err)
	}

	then, err := historian.Scan(ctx, history.Range{}, history.ScanOptions{Revision: before})
	if err != nil {
		log.Fatal(err)
	}
	for _, record := range then.Records {
		fmt.Printf("at revision %d there was %s\n", then.Revision, record.Resource.Id.Name)
	}

	follower, err := historian.Follow(ctx, history.Range{}, before)
	if err != nil {
		log.Fatal(err)
	}
	defer follower.Close()
	changes, upTo, err := follower.Next(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, change := range changes {
		fmt.Printf("at revision %d %s was deleted\n", upTo, change.Old.Resource.Id.Name)
	}
	// Output:
	// at revision 2 there was cart
	// at revision 3 cart was deleted
}
