// Command hello writes a resource, changes it, and sees a change from an old version refused. It is the snippet in
// README.md; a test compares the two.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/oklog/ulid/v2"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
	_ "github.com/ashlar-dev/storage/sqlite" // a program links the adapters it imports, and no others
)

func main() {
	ctx := context.Background()
	backend, err := storage.Open(ctx, "sqlite:hello.db") // or mem://, postgres://…, etcd://…, dynamodb://…
	if err != nil {
		log.Fatal(err)
	}
	defer backend.Close()

	watch, err := backend.WatchList(ctx, storage.UnversionedType{Group: "demo", Kind: "Service"},
		&resourcepb.Tenancy{Partition: "default", Namespace: storage.Wildcard}, "")
	if err != nil {
		log.Fatal(err)
	}
	defer watch.Close()

	first, err := backend.WriteCAS(ctx, &resourcepb.Resource{
		Id: &resourcepb.ID{
			Type:    &resourcepb.Type{Group: "demo", GroupVersion: "v1", Kind: "Service"},
			Tenancy: &resourcepb.Tenancy{Partition: "default", Namespace: "shop"},
			Name:    "cart-" + ulid.Make().String(),
			Uid:     ulid.Make().String(), // tells this one from a later one of the same name
		},
	})
	if err != nil {
		log.Fatal(err)
	}

	first.Metadata = map[string]string{"tier": "front"}
	if _, err := backend.WriteCAS(ctx, first); err != nil { // made from the stored version: it is written
		log.Fatal(err)
	}
	_, err = backend.WriteCAS(ctx, first) // made from the version before
	fmt.Println("refused:", errors.Is(err, storage.ErrCASFailure))

	for seen := 0; seen < 2; { // the watch shows both versions, in order
		event, err := watch.Next(ctx)
		if err != nil {
			log.Fatal(err)
		}
		if r := event.GetUpsert().GetResource(); r.GetId().GetUid() == first.Id.Uid {
			seen++
			fmt.Println("version", seen, "tier:", r.Metadata["tier"])
		}
	}
}
