package bboltstore_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/examples/bboltstore"
	"github.com/ashlar-dev/storage/resourcepb"
)

func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "bboltstore")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	backend, err := bboltstore.Open(filepath.Join(dir, "store.db"), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer backend.Close()
	page, err := backend.ListPage(ctx, storage.UnversionedType{Group: "demo", Kind: "Service"}, &resourcepb.Tenancy{}, "", storage.ListOptions{})
	if err != nil {
		log.Fatal(err)
	}

	_, err = backend.WriteCAS(ctx, &resourcepb.Resource{
		Id: &resourcepb.ID{
			Type:    &resourcepb.Type{Group: "demo", GroupVersion: "v1", Kind: "Service"},
			Tenancy: &resourcepb.Tenancy{}, Name: "cart", Uid: "1",
		},
	})
	if err != nil {
		log.Fatal(err)
	}

	// The changes after the listing, in this process or in a later one.
	watch, err := backend.WatchFrom(ctx, storage.UnversionedType{Group: "demo", Kind: "Service"}, &resourcepb.Tenancy{}, "", page.Cursor)
	if err != nil {
		log.Fatal(err)
	}
	defer watch.Close()
	event, err := watch.Next(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("written:", event.GetUpsert().GetResource().GetId().GetName())
	// Output: written: cart
}
