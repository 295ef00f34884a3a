//go:build integration

package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/postgres"
)

// TestEveryVersionOnce runs 32 writers on 50 hot keys, over 4 handles, and 8 watches that must return every version once.
func TestEveryVersionOnce(t *testing.T) {
	t.Parallel()
	storeURL := env.Postgres(t).StoreURL(t)
	c := newChurn(t, 50)
	var handles []storage.Backend
	var followers []*follower
	for i := range 4 {
		b := fixture.Open(t, storeURL)
		handles = append(handles, b)
		for j := range 2 {
			followers = append(followers, follow(t, fmt.Sprintf("watch %d of handle %d", j, i), fixture.WatchAll(t, b)))
		}
	}
	for i := range 32 {
		c.writer(handles[i%4], uint64(i), 100)
	}
	c.finish(handles[0], followers...)
}

// TestNoDeadlocks runs conflicting batches and transactions of several handles on the same keys, and reads the server's deadlock
// count.
func TestNoDeadlocks(t *testing.T) {
	t.Parallel()
	server := env.Postgres(t)
	admin := server.Connect(t)
	database := server.Schema(t)
	if _, err := admin.Exec(fixture.Context(t), "create database "+database); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := admin.Exec(context.Background(), "drop database "+database+" with (force)"); err != nil {
			t.Error(err)
		}
	})
	u := parseURL(t, server.URL)
	u.Path = "/" + database
	const keys = 20
	var handles []storage.Backend
	for range 4 {
		b, err := storage.Open(fixture.Context(t), u.String())
		if err != nil {
			t.Fatal(err)
		}
		handles = append(handles, b)
	}
	for i := range keys {
		fixture.Write(t, handles[0], fixture.Resource(fmt.Sprint("key-", i), "0"))
	}
	var group sync.WaitGroup
	for i := range 48 {
		b := handles[i%len(handles)]
		random := rand.New(rand.NewPCG(uint64(i), 2))
		if i%12 < 4 {
			group.Go(func() { transact(t, b, random, keys) })
		} else {
			group.Go(func() { update(t, b, random, keys) })
		}
	}
	group.Wait()
	for _, b := range handles {
		if err := b.Close(); err != nil { // ends the sessions, and a session that ends reports its counts
			t.Error(err)
		}
	}
	var deadlocks, commits int
	if err := admin.QueryRow(fixture.Context(t), "select deadlocks, xact_commit from pg_stat_database where datname = $1", database).Scan(&deadlocks, &commits); err != nil {
		t.Fatal(err)
	}
	if deadlocks > 0 {
		t.Errorf("%d deadlocks", deadlocks)
	}
	t.Logf("%d transactions", commits)
}

func update(t *testing.T, b storage.Backend, random *rand.Rand, keys int) {
	ctx := fixture.Context(t)
	for range 40 {
		current, err := b.Read(ctx, storage.StrongConsistency, fixture.Resource(fmt.Sprint("key-", random.IntN(keys)), "").Id)
		if err == nil {
			_, err = b.WriteCAS(ctx, current)
		}
		if err != nil && !errors.Is(err, storage.ErrCASFailure) {
			t.Error(err)
			return
		}
	}
}

func transact(t *testing.T, b storage.Backend, random *rand.Rand, keys int) {
	ctx := fixture.Context(t)
	transactor, _ := storage.As[storage.Transactor](b)
	for range 40 {
		var ops []storage.Op
		for _, i := range random.Perm(keys)[:8] {
			current, err := b.Read(ctx, storage.StrongConsistency, fixture.Resource(fmt.Sprint("key-", i), "").Id)
			if err != nil {
				t.Error(err)
				return
			}
			ops = append(ops, storage.Op{Write: current})
		}
		if _, err := transactor.Commit(ctx, ops); err != nil && !errors.Is(err, storage.ErrCASFailure) {
			t.Error(err)
			return
		}
	}
}

// TestOneFeed counts the connections of a handle with many watches, and of a closed handle.
func TestOneFeed(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	name := server.Schema(t)
	b := fixture.Open(t, server.StoreURLIn(t, name, "pool_max_conns=4", "application_name="+name))
	var watches []storage.Watch
	for range 100 {
		watches = append(watches, fixture.WatchAll(t, b))
	}
	written := fixture.Write(t, b, fixture.Resource("one", "v"))
	for _, w := range watches {
		endOfSnapshot(t, w)
		if event := fixture.Next(t, w); event.GetUpsert().GetResource().GetVersion() != written.Version {
			t.Fatalf("event %v, expected version %s", event, written.Version)
		}
	}
	conn := server.Connect(t)
	count := func() (n int) {
		t.Helper()
		if err := conn.QueryRow(ctx, "select count(*) from pg_stat_activity where application_name = $1", name).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := count(); n > 4+3 {
		t.Errorf("%d connections", n)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	fixture.Eventually(t, "the connections to be closed", func() bool { return count() == 0 })
}

// TestNotify leaves a watch only notifications as a source, including notifications of a handle that is closed at once.
func TestNotify(t *testing.T) {
	t.Parallel()
	server := env.Postgres(t)
	schema := server.Schema(t)
	w := fixture.WatchAll(t, fixture.Open(t, server.StoreURLIn(t, schema, "poll=1h")))
	endOfSnapshot(t, w)
	for range 5 {
		b, err := storage.Open(fixture.Context(t), server.StoreURLIn(t, schema))
		if err != nil {
			t.Fatal(err)
		}
		postgres.PrepareNotifications(t, b)
		var last string
		for range 5 {
			last = fixture.Write(t, b, fixture.Resource("one"+unique(), "v")).Version
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		for fixture.Next(t, w).GetUpsert().GetResource().GetVersion() != last {
		}
	}
}

// TestNotifyNewcomer starts to listen where no session listened before. A writer that has found no listener sends no notifications
// for a while, and its writes in that time must arrive nevertheless.
func TestNotifyNewcomer(t *testing.T) {
	t.Parallel()
	server := env.Postgres(t)
	schema := server.Schema(t)
	b := fixture.Open(t, server.StoreURLIn(t, schema))
	postgres.PrepareNotifications(t, b)
	for range 3 {
		fixture.Write(t, b, fixture.Resource("alone"+unique(), "v"))
		newcomer, err := storage.Open(fixture.Context(t), server.StoreURLIn(t, schema, "poll=1h"))
		if err != nil {
			t.Fatal(err)
		}
		w := fixture.WatchAll(t, newcomer)
		for fixture.Next(t, w).GetEndOfSnapshot() == nil {
		}
		for range 5 {
			expect(t, "newcomer", w, fixture.Write(t, b, fixture.Resource("heard"+unique(), "v")))
		}
		if err := newcomer.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSchemasWithOddNames keeps two stores in one database, in schemas whose names need quoting.
func TestSchemasWithOddNames(t *testing.T) {
	t.Parallel()
	server := env.Postgres(t)
	base := server.Schema(t)
	conn := server.Connect(t)
	for _, odd := range []string{` "quo''ted" {{.}}`, ` $1;--`} {
		schema := base + odd
		t.Cleanup(func() {
			quoted := `"` + strings.ReplaceAll(schema, `"`, `""`) + `"`
			if _, err := conn.Exec(context.Background(), "drop schema if exists "+quoted+" cascade"); err != nil {
				t.Error(err)
			}
		})
		b := fixture.Open(t, server.StoreURLIn(t, url.QueryEscape(schema)))
		w := fixture.WatchAll(t, b)
		endOfSnapshot(t, w)
		stored := fixture.Write(t, b, fixture.Resource("one", "v"))
		if event := fixture.Next(t, w); event.GetUpsert().GetResource().GetVersion() != stored.Version {
			t.Errorf("event %v", event)
		}
		if err := b.DeleteCAS(fixture.Context(t), stored.Id, stored.Version); err != nil {
			t.Error(err)
		}
		names, err := b.List(fixture.Context(t), storage.StrongConsistency, fixture.AllTypes, fixture.AllTenancies, "")
		if err != nil || !slices.Equal(names, nil) {
			t.Errorf("list: %v, %v", names, err)
		}
	}
}
