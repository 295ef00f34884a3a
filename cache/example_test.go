package cache_test

import (
	"context"
	"fmt"
	"log"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/cache"
	"github.com/ashlar-dev/storage/resourcepb"
)

func ExampleNew() {
	ctx := context.Background()
	backend, err := storage.Open(ctx, "mem://")
	if err != nil {
		log.Fatal(err)
	}
	orders := storage.UnversionedType{Group: "shop", Kind: "Order"}
	cached, err := cache.New(ctx, backend, &cache.Options{Types: []storage.UnversionedType{orders}})
	if err != nil {
		log.Fatal(err)
	}
	defer cached.Close()

	tenancy := &resourcepb.Tenancy{Partition: "default", Namespace: "eu"}
	id := &resourcepb.ID{
		Type: &resourcepb.Type{Group: orders.Group, GroupVersion: "v1", Kind: orders.Kind}, Tenancy: tenancy, Name: "order-1", Uid: "1",
	}
	if _, err := cached.WriteCAS(ctx, &resourcepb.Resource{Id: id, Metadata: map[string]string{"state": "paid"}}); err != nil {
		log.Fatal(err)
	}
	res, err := cached.Read(ctx, storage.EventualConsistency, id) // from memory, including the write
	if err != nil {
		log.Fatal(err)
	}
	all, err := cached.List(ctx, storage.StrongConsistency, orders, tenancy, "") // from memory, after a barrier
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(res.GetMetadata()["state"], len(all), cached.Stats().Resources)
	// Output: paid 1 1
}
