//go:build integration

package postgres

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// TestCatchingUpLeavesConnections blocks the reads of more watches than the pool has connections: reads of the log by lagging watches, and
// first and later pages of snapshots. They take at most a quarter of the connections, and a write does not wait for them.
func TestCatchingUpLeavesConnections(t *testing.T) {
	t.Parallel()
	for name, catchUp := range map[string]func(context.Context, *Backend) error{
		"lagging watches": func(ctx context.Context, b *Backend) error {
			_, _, _, err := b.handle.source.page(ctx, position{}, 100)
			return err
		},
		"snapshots": func(ctx context.Context, b *Backend) error {
			w, err := b.WatchList(ctx, orderType, &resourcepb.Tenancy{}, "")
			if err == nil {
				w.Close()
			}
			return err
		},
		"later pages of snapshots": readOpenSnapshots(10),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := fixture.Context(t)
			server := env.Postgres(t)
			b := openHandle(t, ctx, server.StoreURL(t, "pool_max_conns=4"))
			pool := b.handle.database.main
			res, err := b.WriteCAS(ctx, orderResource("one", ""))
			if err != nil {
				t.Fatal(err)
			}
			if err := catchUp(ctx, b); err != nil { // the feed runs
				t.Fatal(err)
			}
			b.askAll(t, ctx)

			tx, err := server.Connect(t).Begin(ctx)
			if err != nil {
				t.Fatal(err)
			}
			// The history reads the table store, writes do not.
			if _, err := tx.Exec(ctx, "lock "+pgx.Identifier{b.handle.database.sql.schema, "store"}.Sanitize()); err != nil {
				t.Fatal(err)
			}
			calls, end := context.WithCancel(ctx)
			defer end()
			var started, running sync.WaitGroup
			for range 8 {
				started.Add(1)
				running.Go(func() { _ = catchUp(&startSignal{Context: calls, started: sync.OnceFunc(started.Done)}, b) })
			}
			started.Wait()
			fixture.Eventually(t, "a read to wait", func() bool { return pool.Stat().AcquiredConns() > 0 })
			writing, cancel := context.WithTimeout(ctx, 30*time.Second)
			defer cancel()
			if _, err := b.WriteCAS(writing, res); err != nil {
				t.Errorf("a write beside watches that catch up: %v", err)
			}
			if n := pool.Stat().AcquiredConns(); n > 2 { // one of them may read the sizes of the tables
				t.Errorf("%d of 4 connections are in use, expected at most 1 by watches that catch up", n)
			}
			if err := tx.Rollback(ctx); err != nil {
				t.Fatal(err)
			}
			end()
			running.Wait()
			if err := catchUp(ctx, b); err != nil {
				t.Errorf("after the reads were given up: %v", err)
			}
		})
	}
}

// readOpenSnapshots returns a function whose first call opens some watches. Each call reads the snapshot of the next one, of several pages.
func readOpenSnapshots(count int) func(context.Context, *Backend) error {
	var open sync.Once
	watches := make(chan storage.Watch, count)
	return func(ctx context.Context, b *Backend) (err error) {
		open.Do(func() {
			for n := range 3 {
				res := orderResource(fmt.Sprint("large-", n), "")
				res.Data = &anypb.Any{TypeUrl: "example.com/Blob", Value: make([]byte, 100<<10)}
				if _, err = b.WriteCAS(ctx, res); err != nil {
					return
				}
			}
			for range count {
				var w storage.Watch
				if w, err = b.WatchList(ctx, orderType, &resourcepb.Tenancy{}, ""); err != nil {
					return
				}
				watches <- w
			}
		})
		if err != nil {
			return err
		}
		w := <-watches
		defer w.Close()
		for {
			if ev, err := w.Next(ctx); err != nil || ev.GetEndOfSnapshot() != nil {
				return err
			}
		}
	}
}

// askAll opens all connections of the pool and reads the server's clock on each, so that the next writes do not.
func (b *Backend) askAll(t *testing.T, ctx context.Context) {
	t.Helper()
	d := b.handle.database
	for range d.main.Config().MaxConns {
		conn, err := d.main.Acquire(ctx)
		if err == nil {
			defer conn.Release()
			err = d.sessions.of(conn.Conn()).ask(ctx, conn.Conn(), d.sql)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
