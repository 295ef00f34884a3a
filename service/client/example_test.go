package client_test

import (
	"context"
	"fmt"
	"log"
	"net"

	"google.golang.org/grpc"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/client"
	"github.com/ashlar-dev/storage/service/registry"
	"github.com/ashlar-dev/storage/typed"
)

type order struct{ Customer string }

// A typed client writes and reads through a server.
func ExampleDial() {
	ctx := context.Background()
	store := inmem.New(nil)
	defer store.Close()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	service.New(store, registry.NewOpen(registry.Type{}), nil).Register(server)
	go func() { _ = server.Serve(listener) }() // it ends when it is stopped
	defer server.Stop()

	backend, err := client.Dial(client.Options{Address: listener.Addr().String()})
	if err != nil {
		log.Fatal(err)
	}
	defer backend.Close()
	orders := typed.NewJSON[order](backend, typed.NewType("shop", "v1", "Order"))
	id := orders.ID(typed.NewTenancy("default", "default"), "o1")
	if _, err := orders.Create(ctx, typed.Object[order]{ID: id, Data: order{Customer: "Ada"}}); err != nil {
		log.Fatal(err)
	}
	read, err := orders.Get(ctx, storage.StrongConsistency, id)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(read.Data.Customer)
	// Output: Ada
}
