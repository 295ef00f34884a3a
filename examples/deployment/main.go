// Command deployment is a deployment controller: deployments own replica sets, and these own pods. It scales them up and down, and rolls out new
// templates. It works on the resources of examples/boutique. Start it several times, on one machine or on several: each controller runs in one
// process, and if that process dies, in the next one.
//
//	go run ./examples/deployment -name first sqlite:shop.db
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/controller"
	_ "github.com/ashlar-dev/storage/etcd"
	_ "github.com/ashlar-dev/storage/postgres"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/reaper"
	"github.com/ashlar-dev/storage/service/registry"
	_ "github.com/ashlar-dev/storage/sqlite"
)

func main() {
	name := flag.String("name", "", "the name of this process in leases")
	ttl := flag.Duration("ttl", 15*time.Second, "lifetime of a lease: how long the work of a dead process rests")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, flag.Arg(0), &controller.Options{Name: *name, LeaseTTL: *ttl}); err != nil && !errors.Is(err, context.Canceled) {
		log.Fatal(err)
	}
}

func run(ctx context.Context, url string, o *controller.Options) error {
	backend, err := storage.Open(ctx, url)
	if err != nil {
		return fmt.Errorf("deployment: open the store: %w", err)
	}
	defer backend.Close()
	server := service.New(backend, registry.NewOpen(registry.Type{}), nil)
	o.Leases = backend
	m := controller.NewManager(server.Client(), o)
	if err := m.Register(controllers()...); err != nil {
		return err
	}
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { _ = reaper.New(server, nil).Run(ctx) })
	return m.Run(ctx)
}
