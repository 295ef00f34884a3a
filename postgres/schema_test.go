//go:build integration

package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/migrations"
	"github.com/ashlar-dev/storage/postgres"
	"github.com/ashlar-dev/storage/resourcepb"
)

func parseURL(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// TestDevelopmentStoreIsRefused opens stores of schema versions from before the first release.
func TestDevelopmentStoreIsRefused(t *testing.T) {
	t.Parallel()
	for _, version := range []int{1, 8} {
		t.Run(fmt.Sprint(version), func(t *testing.T) {
			t.Parallel()
			ctx := fixture.Context(t)
			server := env.Postgres(t)
			schema := server.Schema(t)
			storeURL := server.StoreURLIn(t, schema)
			if _, err := server.Connect(t).Exec(ctx, fmt.Sprintf("create schema %s; create table %s (version int4 not null); insert into %[2]s values (%d)",
				pgx.Identifier{schema}.Sanitize(), pgx.Identifier{schema, "schema_version"}.Sanitize(), version)); err != nil {
				t.Fatal(err)
			}
			for _, suffix := range []string{"", "&create=off"} {
				_, err := storage.Open(ctx, storeURL+suffix)
				if !errors.Is(err, migrations.ErrIncompatible) || !strings.Contains(err.Error(), "ashlar export") {
					t.Errorf("opened with %q: %v", suffix, err)
				}
			}
			if _, err := postgres.UpgradeSchema(ctx, parseURL(t, storeURL)); !errors.Is(err, migrations.ErrIncompatible) {
				t.Errorf("upgraded: %v", err)
			}
			status, err := postgres.SchemaStatus(ctx, parseURL(t, storeURL))
			if err != nil || !errors.Is(status.Refusal, migrations.ErrIncompatible) || status.Version != version || status.Latest != migrations.Latest || status.Name != schema {
				t.Errorf("status: %+v, %v", status, err)
			}
		})
	}
}

// TestEditedStepIsRefused opens a store that records another checksum of a step than the program has.
func TestEditedStepIsRefused(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	schema := server.Schema(t)
	storeURL := server.StoreURLIn(t, schema)
	fixture.Open(t, storeURL)
	if _, err := server.Connect(t).Exec(ctx, "update "+pgx.Identifier{schema, "schema_version"}.Sanitize()+" set checksum = 'another'"); err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{"", "&create=off"} {
		_, err := storage.Open(ctx, storeURL+suffix)
		if !errors.Is(err, migrations.ErrIncompatible) || !strings.Contains(err.Error(), "001_store.sql") || !strings.Contains(err.Error(), "another") {
			t.Errorf("opened with %q: %v", suffix, err)
		}
	}
}

// TestCreateTogether opens a new store from several handles at once.
func TestCreateTogether(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	storeURL := env.Postgres(t).StoreURL(t)
	var group sync.WaitGroup
	for range 6 {
		group.Go(func() {
			b, err := storage.Open(ctx, storeURL)
			if err != nil {
				t.Error(err)
				return
			}
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
}

func TestNoStore(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	storeURL := env.Postgres(t).StoreURL(t)
	if _, err := storage.Open(ctx, storeURL+"&create=off"); !errors.Is(err, storage.ErrNoStore) || !errors.Is(err, migrations.ErrNone) {
		t.Fatalf("opened with create=off: %v", err)
	}
	status, err := postgres.SchemaStatus(ctx, parseURL(t, storeURL))
	if err != nil || status.Version != 0 {
		t.Fatalf("status: %+v, %v", status, err)
	}
	if from, err := postgres.UpgradeSchema(ctx, parseURL(t, storeURL)); err != nil || from != 0 {
		t.Fatalf("upgrade: from %d, %v", from, err)
	}
	fixture.Open(t, storeURL+"&create=off")
	if from, err := postgres.UpgradeSchema(ctx, parseURL(t, storeURL)); err != nil || from != migrations.Latest {
		t.Fatalf("second upgrade: from %d, %v", from, err)
	}
}

func TestNewerStoreIsRefused(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	schema := server.Schema(t)
	storeURL := server.StoreURLIn(t, schema)
	fixture.Open(t, storeURL)
	if _, err := server.Connect(t).Exec(ctx, "update "+pgx.Identifier{schema, "schema_version"}.Sanitize()+" set version = version + 1"); err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{"", "&create=off"} {
		if _, err := storage.Open(ctx, storeURL+suffix); !errors.Is(err, storage.ErrNewerSchema) {
			t.Errorf("opened with %q: %v", suffix, err)
		}
	}
	if _, err := postgres.UpgradeSchema(ctx, parseURL(t, storeURL)); !errors.Is(err, storage.ErrNewerSchema) {
		t.Errorf("upgraded: %v", err)
	}
	if status, err := postgres.SchemaStatus(context.WithoutCancel(ctx), parseURL(t, storeURL)); err != nil || status.Version != migrations.Latest+1 || !errors.Is(status.Refusal, storage.ErrNewerSchema) {
		t.Errorf("status: %+v, %v", status, err)
	}
}

// TestNewerStoreAdmitsProgram opens a store that a newer program upgraded by a step that this program survives. An upgrade changes nothing.
func TestNewerStoreAdmitsProgram(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	schema := server.Schema(t)
	storeURL := server.StoreURLIn(t, schema)
	old := fixture.Open(t, storeURL)
	w := fixture.WatchAll(t, old)
	endOfSnapshot(t, w)
	versions := pgx.Identifier{schema, "schema_version"}.Sanitize()
	if _, err := server.Connect(t).Exec(ctx, fmt.Sprintf("alter table %s add column if not exists oldest int; insert into %[1]s (version, checksum, oldest) values (%d, 'newer', %d)",
		versions, migrations.Latest+1, migrations.Latest)); err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{"", "&create=off", "&upgrade=auto"} {
		written := fixture.Write(t, fixture.Open(t, storeURL+suffix), fixture.Resource("name"+fmt.Sprint(len(suffix)), "v"))
		expect(t, "a watch from before the upgrade", w, written)
	}
	if from, err := postgres.UpgradeSchema(ctx, parseURL(t, storeURL)); err != nil || from != migrations.Latest+1 {
		t.Errorf("upgrade returned version %d, %v, expected %d", from, err, migrations.Latest+1)
	}
	status, err := postgres.SchemaStatus(ctx, parseURL(t, storeURL))
	if err != nil || status.Version != migrations.Latest+1 || status.Refusal != nil || len(status.Steps) > 0 {
		t.Errorf("status: %+v, %v", status, err)
	}
}

// TestRestoredDump restores a store's tables from a dump, and lets the history pass the old position. A cursor from before the dump
// is valid; a cursor of a lost change or of an open watch is not.
func TestRestoredDump(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	schema := server.Schema(t)
	storeURL := server.StoreURLIn(t, schema)
	b := fixture.Open(t, storeURL)
	kept := fixture.Write(t, b, fixture.Resource("kept", "v"))
	w := fixture.WatchAll(t, b)
	fixture.Next(t, w)
	endOfSnapshot(t, w)
	dumped := w.Cursor()
	conn := server.Connect(t)
	name := func(table string) string { return pgx.Identifier{schema, table}.Sanitize() }
	exec := func(sql string) {
		t.Helper()
		if _, err := conn.Exec(ctx, sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	var last int64
	if err := conn.QueryRow(ctx, "select last_value from "+name("changes_seq")).Scan(&last); err != nil {
		t.Fatal(err)
	}
	exec("create table " + name("saved_resources") + " as table " + name("resources"))
	exec("create table " + name("saved_changes") + " as table " + name("changes"))

	var lost []string
	for range 3 {
		kept = fixture.Write(t, b, kept)
		expect(t, "watch", w, kept)
		lost = append(lost, w.Cursor())
	}
	exec("begin; truncate " + name("resources") + ", " + name("changes") +
		"; insert into " + name("resources") + " table " + name("saved_resources") +
		"; insert into " + name("changes") + " table " + name("saved_changes") +
		fmt.Sprintf("; select setval('%s', %d); commit", name("changes_seq"), last))

	restored := fixture.Open(t, storeURL)
	current := read(t, restored, kept.Id)
	var fresh []*resourcepb.Resource
	for range 5 {
		current = fixture.Write(t, restored, current)
		fresh = append(fresh, current)
	}
	if _, err := w.Next(ctx); !errors.Is(err, storage.ErrCompacted) || !errors.Is(err, storage.ErrWatchClosed) {
		t.Errorf("the watch of the lost changes: %v", err)
	}
	for _, cursor := range lost {
		if _, err := resume(t, restored, cursor).Next(ctx); !errors.Is(err, storage.ErrCompacted) {
			t.Errorf("resumed from a lost change: %v", err)
		}
	}
	resumed := resume(t, restored, dumped)
	for _, want := range fresh {
		expect(t, "resumed from before the dump", resumed, want)
	}
	for _, b := range []storage.Backend{b, restored} {
		again := fixture.WatchAll(t, b)
		expect(t, "a new watch", again, current)
		endOfSnapshot(t, again)
	}
}

// TestCreateTogetherUnderRepeatableRead opens a new store twice concurrently. By default, the sessions' transactions use one snapshot for
// all of their statements. Both openers wait for the lock before one of them continues.
func TestCreateTogetherUnderRepeatableRead(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	schema := server.Schema(t)
	storeURL := server.StoreURLIn(t, schema, "application_name="+schema,
		"options="+url.QueryEscape(`-c default_transaction_isolation=repeatable\ read`))
	conn := server.Connect(t)
	if _, err := conn.Exec(ctx, "select pg_advisory_lock(hashtextextended($1, 0))", "ashlar schema "+schema); err != nil {
		t.Fatal(err)
	}
	opened := make(chan error, 2)
	for range cap(opened) {
		go func() {
			b, err := storage.Open(ctx, storeURL)
			if err == nil {
				err = b.Close()
			}
			opened <- err
		}()
	}
	fixture.Eventually(t, "both to wait for the lock", func() bool {
		select {
		case err := <-opened:
			t.Fatalf("opened too early: %v", err)
		default:
		}
		var n int
		if err := conn.QueryRow(ctx, "select count(*) from pg_stat_activity where application_name = $1 and wait_event = 'advisory'", schema).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n == cap(opened)
	})

	if _, err := conn.Exec(ctx, "select pg_advisory_unlock_all()"); err != nil {
		t.Fatal(err)
	}
	for range cap(opened) {
		if err := <-opened; err != nil {
			t.Error(err)
		}
	}
}
