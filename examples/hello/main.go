// Command hello creates a resource, updates it, shows that a write from an old version is refused, and watches both versions.
// README.md contains this program; a test compares the two.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/oklog/ulid/v2"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
	_ "github.com/ashlar-dev/storage/sqlite" // links the SQLite adapter and no other driver
)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	backend, err := storage.Open(ctx, "sqlite:hello.db") // or mem://, postgres://…, etcd://…, dynamodb://…
	if err != nil {
		return err
	}
	defer backend.Close()

	services := storage.UnversionedType{Group: "demo", Kind: "Service"}
	watch, err := backend.WatchList(ctx, services, &resourcepb.Tenancy{Partition: "default", Namespace: storage.Wildcard}, "")
	if err != nil {
		return err
	}
	defer watch.Close()

	cart, err := backend.WriteCAS(ctx, &resourcepb.Resource{Id: &resourcepb.ID{ // no version: create
		Type:    &resourcepb.Type{Group: "demo", GroupVersion: "v1", Kind: "Service"},
		Tenancy: &resourcepb.Tenancy{Partition: "default", Namespace: "shop"},
		Name:    "cart-" + ulid.Make().String(),
		Uid:     ulid.Make().String(), // distinguishes this resource from a later one of the same name
	}})
	if err != nil {
		return err
	}
	cart.Metadata = map[string]string{"tier": "front"}
	if _, err := backend.WriteCAS(ctx, cart); err != nil { // the stored version: update
		return err
	}
	_, err = backend.WriteCAS(ctx, cart) // an old version: refused
	fmt.Println("refused:", errors.Is(err, storage.ErrCASFailure))

	for versions := 0; versions < 2; { // the watch returns both versions, in order
		event, err := watch.Next(ctx)
		if err != nil {
			return err
		}
		if r := event.GetUpsert().GetResource(); r.GetId().GetUid() == cart.Id.Uid {
			versions++
			fmt.Printf("version %d: tier %q\n", versions, r.Metadata["tier"])
		}
	}
	return nil
}
