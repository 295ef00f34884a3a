//go:build integration

package postgres_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// TestRolesWithDifferentRights opens one store by two roles. Only one of them may read the server's identity, as on some hosted
// servers. They agree about history.
func TestRolesWithDifferentRights(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t).Database(t)
	owner := server.Connect(t)
	as, role := server.Role(t)
	schema := server.Schema(t)
	if _, err := owner.Exec(ctx, "revoke execute on function pg_catalog.pg_control_system() from public"); err != nil {
		t.Fatal(err)
	}
	may := fixture.Open(t, server.StoreURLIn(t, schema))
	grantAll(t, owner, schema, role)
	w := fixture.WatchAll(t, may)
	endOfSnapshot(t, w)
	first := fixture.Write(t, may, fixture.Resource("first", "v"))
	expect(t, "watch", w, first)
	cursor := w.Cursor()
	second := fixture.Write(t, may, fixture.Resource("second", "v"))
	expect(t, "watch", w, second)

	// Alternately, so that each opens a store that the other has just used.
	for i, opener := range []*env.PostgresServer{as, server, as} {
		b := fixture.Open(t, opener.StoreURLIn(t, schema))
		third := fixture.Write(t, b, fixture.Resource(fmt.Sprint("third", unique()), "v"))
		expect(t, fmt.Sprintf("the watch that stayed open, after opening %d", i), w, third)
		resumed := resume(t, b, cursor)
		expect(t, fmt.Sprintf("resumed after opening %d", i), resumed, second)
		fresh := fixture.WatchAll(t, may)
		for fixture.Next(t, fresh).GetEndOfSnapshot() == nil {
			continue
		}
		fresh.Close()
	}
}

// grantAll permits a role to use a store with another owner.
func grantAll(t *testing.T, owner *pgx.Conn, schema, role string) {
	t.Helper()
	quoted := pgx.Identifier{schema}.Sanitize()
	for _, grant := range []string{
		"grant usage on schema " + quoted, "grant all on all tables in schema " + quoted, "grant all on all sequences in schema " + quoted,
		"grant all on all functions in schema " + quoted,
	} {
		if _, err := owner.Exec(fixture.Context(t), grant+" to "+role); err != nil {
			t.Fatal(err)
		}
	}
}

// TestStoreCreatedAnew drops a store's schema under open handles, and another handle creates it again. A handle's watch ends, a
// clear error may be returned once, and then the handle works with the new store.
func TestStoreCreatedAnew(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	schema := server.Schema(t)
	storeURL := server.StoreURLIn(t, schema)
	b := fixture.Open(t, storeURL)
	w := fixture.WatchAll(t, b)
	endOfSnapshot(t, w)
	expect(t, "watch", w, fixture.Write(t, b, fixture.Resource("old", "v")))
	cursor := w.Cursor()
	if _, err := server.Connect(t).Exec(ctx, "drop schema "+pgx.Identifier{schema}.Sanitize()+" cascade"); err != nil {
		t.Fatal(err)
	}
	anew := fixture.Open(t, storeURL)
	fixture.Write(t, anew, fixture.Resource("new", "v"))
	if _, err := w.Next(ctx); !errors.Is(err, storage.ErrWatchClosed) {
		t.Errorf("the watch of the old store: %v", err)
	}
	compacted(t, "a cursor of the old store, by the old handle", b, cursor)
	compacted(t, "a cursor of the old store, by a new handle", anew, cursor)

	again, err := watchToTheEnd(t, b)
	if err != nil {
		t.Logf("once: %v", err)
		if again, err = watchToTheEnd(t, b); err != nil {
			t.Fatalf("a watch of the new store by the old handle: %v", err)
		}
	}
	expect(t, "a watch by the old handle", again, fixture.Write(t, anew, fixture.Resource("later", "v")))
	expect(t, "a watch by the old handle", again, fixture.Write(t, b, fixture.Resource("own", "v")))
}

// watchToTheEnd starts a watch and reads its snapshot.
func watchToTheEnd(t *testing.T, b storage.Backend) (storage.Watch, error) {
	t.Helper()
	w, err := b.WatchList(fixture.Context(t), fixture.AllTypes, fixture.AllTenancies, "")
	if err != nil {
		return nil, err
	}
	t.Cleanup(w.Close)
	for {
		event, err := w.Next(fixture.Context(t))
		if err != nil || event.GetEndOfSnapshot() != nil {
			return w, err
		}
	}
}

// shortTimes names the store that TestShortTimes opens in a process of its own.
const shortTimes = "ASHLAR_TEST_SHORT_TIMES"

// TestShortTimes sets absurdly short times in parameters: each is refused, or works. It runs in a process of its own, because it
// tests for crashes.
func TestShortTimes(t *testing.T) {
	t.Parallel()
	if storeURL := os.Getenv(shortTimes); storeURL != "" {
		useBriefly(t, storeURL)
		return
	}
	server := env.Postgres(t)
	for _, param := range []string{
		"retention=1ns", "retention=3ns", "retention=1us", "retention=9223372036854775807ns", "poll=1ns", "poll=3ns&listen=off", "outage=1ns",
	} {
		t.Run(param, func(t *testing.T) {
			t.Parallel()
			child := exec.Command(os.Args[0], "-test.run=^TestShortTimes$", "-test.count=1")
			child.Env = append(os.Environ(), shortTimes+"="+server.StoreURL(t)+"&"+param)
			if out, err := child.CombinedOutput(); err != nil {
				t.Errorf("%v:\n%.2000s", err, out)
			}
		})
	}
}

// useBriefly writes, and reads the events of a watch. A watch may lose history that such a short retention does not keep.
func useBriefly(t *testing.T, storeURL string) {
	b, err := storage.Open(fixture.Context(t), storeURL)
	if errors.Is(err, storage.ErrInvalid) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for i := range 3 {
		w, err := b.WatchList(fixture.Context(t), fixture.AllTypes, fixture.AllTenancies, "")
		if errors.Is(err, storage.ErrCompacted) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		fixture.Write(t, b, fixture.Resource(fmt.Sprint("one-", i), "v"))
		for events := 0; events <= i+1; events++ { // the snapshot, its end, and the write
			if _, err := w.Next(fixture.Context(t)); err != nil {
				if !errors.Is(err, storage.ErrWatchClosed) {
					t.Error(err)
				}
				break
			}
		}
		w.Close()
	}
}
