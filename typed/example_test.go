package typed_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/typed"
)

func ExampleClient_Update() {
	ctx := context.Background()
	backend, err := storage.Open(ctx, "mem://")
	if err != nil {
		log.Fatal(err)
	}
	defer backend.Close()

	timeouts := typed.New[*durationpb.Duration](backend, &resourcepb.Type{Group: "demo", GroupVersion: "v1", Kind: "Timeout"})
	id := timeouts.ID(&resourcepb.Tenancy{Partition: "default", Namespace: "shop"}, "checkout")
	if _, err := timeouts.Create(ctx, typed.Object[*durationpb.Duration]{ID: id, Data: durationpb.New(time.Second)}); err != nil {
		log.Fatal(err)
	}
	stored, err := timeouts.Update(ctx, id, func(o *typed.Object[*durationpb.Duration]) error {
		o.Data = durationpb.New(2 * o.Data.AsDuration())
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(stored.ID.GetName(), stored.Data.AsDuration())
	// Output: checkout 2s
}
