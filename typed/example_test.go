package typed_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

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

func ExampleTransact() {
	ctx := context.Background()
	backend, err := storage.Open(ctx, "mem://")
	if err != nil {
		log.Fatal(err)
	}
	defer backend.Close()

	accounts := typed.New[*wrapperspb.Int64Value](backend, &resourcepb.Type{Group: "demo", GroupVersion: "v1", Kind: "Account"})
	tenancy := &resourcepb.Tenancy{Partition: "default", Namespace: "bank"}
	for _, name := range []string{"ada", "bob"} {
		if _, err := accounts.Create(ctx, typed.Object[*wrapperspb.Int64Value]{ID: accounts.ID(tenancy, name), Data: wrapperspb.Int64(10)}); err != nil {
			log.Fatal(err)
		}
	}
	if err := typed.Transact(ctx, backend, func(tx *typed.Tx) error {
		in := accounts.In(tx)
		from, err := in.Get(accounts.ID(tenancy, "ada"))
		if err != nil {
			return err
		}
		to, err := in.Get(accounts.ID(tenancy, "bob"))
		if err != nil {
			return err
		}
		from.Data.Value -= 3
		to.Data.Value += 3
		return errors.Join(in.Put(from), in.Put(to))
	}); err != nil {
		log.Fatal(err)
	}
	for account, err := range accounts.List(ctx, storage.StrongConsistency, tenancy, "") {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(account.ID.GetName(), account.Data.GetValue())
	}
	// Output:
	// ada 7
	// bob 13
}
