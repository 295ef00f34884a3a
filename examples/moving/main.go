// Command moving counts in a store, and follows the store to other databases while it runs. Its arguments are the URL of the store, and the
// URLs of the stores to which it may move:
//
//	go run ./examples/moving sqlite:/tmp/first.db 'dynamodb://second?region=eu-west-1' postgres://db.example/third
//
// In another terminal, move the store. The numbers continue, each of them once:
//
//	ashlar migrate --from sqlite:/tmp/first.db --to 'dynamodb://second?region=eu-west-1' --live --cutover-when-lag-below 10s
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ashlar-dev/storage"
	_ "github.com/ashlar-dev/storage/dynamodb"
	_ "github.com/ashlar-dev/storage/etcd"
	"github.com/ashlar-dev/storage/moved"
	_ "github.com/ashlar-dev/storage/postgres"
	"github.com/ashlar-dev/storage/resourcepb"
	_ "github.com/ashlar-dev/storage/sqlite"
)

func main() {
	if len(os.Args) < 2 {
		log.Fatal("usage: moving URL [URL...]")
	}
	if err := run(context.Background(), os.Stdout, 200*time.Millisecond, os.Args[1:]...); err != nil {
		log.Fatal(err)
	}
}

var counter = &resourcepb.ID{
	Type:    &resourcepb.Type{Group: "demo", GroupVersion: "v1", Kind: "Counter"},
	Tenancy: &resourcepb.Tenancy{Partition: "default", Namespace: "default"},
	Name:    "counter", Uid: "counter",
}

// run counts, and prints each number that a watch returns, until ctx ends.
func run(ctx context.Context, out io.Writer, interval time.Duration, urls ...string) error {
	first, err := storage.Open(ctx, urls[0])
	if err != nil {
		return err
	}
	store := moved.New(first, moved.Among(urls...))
	defer func() { _ = store.Close() }()
	watch, err := store.WatchList(ctx, storage.UnversionedTypeFrom(counter.Type), counter.Tenancy, "")
	if err != nil {
		return err
	}
	defer watch.Close()
	group, running := errgroup.WithContext(ctx)
	group.Go(func() error {
		for {
			if err := count(running, store); err != nil {
				return err
			}
			select {
			case <-time.After(interval):
			case <-running.Done():
				return nil
			}
		}
	})
	group.Go(func() error {
		for {
			event, err := watch.Next(running) // it continues in the next store by itself
			if err != nil {
				return err
			}
			if res := event.GetUpsert().GetResource(); res != nil {
				fmt.Fprintln(out, res.Generation)
			}
		}
	})
	if err := group.Wait(); ctx.Err() == nil {
		return err
	}
	return nil
}

// count increments the counter. A version belongs to one store, so after a move it reads again, as after any other conflict.
func count(ctx context.Context, store storage.Backend) error {
	for {
		res, err := store.Read(ctx, storage.StrongConsistency, counter)
		switch {
		case errors.Is(err, storage.ErrNotFound):
			res = &resourcepb.Resource{Id: counter}
		case err != nil:
			return err
		}
		n, _ := strconv.Atoi(res.Generation)
		res.Generation = strconv.Itoa(n + 1)
		if _, err = store.WriteCAS(ctx, res); !errors.Is(err, storage.ErrCASFailure) {
			return err
		}
	}
}
