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

	"google.golang.org/protobuf/proto"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/message"
	"github.com/ashlar-dev/storage/internal/testenv"
	"github.com/ashlar-dev/storage/migrations"
	"github.com/ashlar-dev/storage/postgres"
)

func parseURL(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// TestUpgrade makes a store of each older version, writes to it as a program of that time did, and opens it.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	for version := 1; version < migrations.Latest; version++ {
		t.Run(fmt.Sprint(version), func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			server := testenv.Postgres(t)
			conn := server.Connect(t)
			schema := server.Schema(t)
			storeURL := server.StoreURLIn(t, schema)
			if _, err := migrations.Up(ctx, conn, schema, version); err != nil {
				t.Fatal(err)
			}
			old := resource("kept", "v")
			data, err := message.Encode(old)
			if err != nil {
				t.Fatal(err)
			}
			key := strings.Join([]string{"g", "Kind", "p", "n", "kept"}, "\x00")
			resources, changes := pgx.Identifier{schema, "resources"}.Sanitize(), pgx.Identifier{schema, "changes"}.Sanitize()
			token := []byte("sixteen bytes...")
			if _, err := conn.Exec(ctx, "insert into "+resources+" (key, uid, version, group_version, data) values ($1, $2, $3, $4, $5)",
				[]byte(key), []byte("uid-kept"), token, []byte("v1"), data); err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Exec(ctx, "insert into "+changes+" (seq, op, key, version, token, data) values (1, 1, $1, $2, $2, $3)",
				[]byte(key), token, data); err != nil {
				t.Fatal(err)
			}

			status, err := postgres.SchemaStatus(ctx, parseURL(t, storeURL))
			if err != nil || status.Version != version || status.Latest != migrations.Latest || status.Name != schema {
				t.Fatalf("status of the old store: %+v, %v", status, err)
			}
			if _, err := storage.Open(ctx, storeURL+"&create=off"); err == nil || !strings.Contains(err.Error(), "ashlar schema up") {
				t.Fatalf("opened with create=off: %v", err)
			}
			b := open(t, storeURL)
			got, err := b.Read(ctx, storage.StrongConsistency, old.Id)
			if err != nil {
				t.Fatal(err)
			}
			got.Version = ""
			if !proto.Equal(got, old) {
				t.Fatalf("read after the upgrade: %v, expected %v", got, old)
			}
			w := watchAll(t, b)
			next(t, w)
			endOfSnapshot(t, w)
			written := write(t, b, read(t, b, old.Id))
			if event := next(t, w); event.GetUpsert().GetResource().GetVersion() != written.Version {
				t.Fatalf("event after the upgrade: %v", event)
			}
			if status, err := postgres.SchemaStatus(ctx, parseURL(t, storeURL)); err != nil || status.Version != migrations.Latest {
				t.Fatalf("status after the upgrade: %+v, %v", status, err)
			}
		})
	}
}

// TestUpgradeTogether opens a new store, and one of the first version, from many sides at once.
func TestUpgradeTogether(t *testing.T) {
	t.Parallel()
	for version := range 2 {
		t.Run(fmt.Sprint(version), func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			server := testenv.Postgres(t)
			schema := server.Schema(t)
			storeURL := server.StoreURLIn(t, schema)
			if version > 0 {
				if _, err := migrations.Up(ctx, server.Connect(t), schema, version); err != nil {
					t.Fatal(err)
				}
			}
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
		})
	}
}

func TestNoStore(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	storeURL := testenv.Postgres(t).StoreURL(t)
	if _, err := storage.Open(ctx, storeURL+"&create=off"); !errors.Is(err, migrations.ErrNone) {
		t.Fatalf("opened with create=off: %v", err)
	}
	status, err := postgres.SchemaStatus(ctx, parseURL(t, storeURL))
	if err != nil || status.Version != 0 {
		t.Fatalf("status: %+v, %v", status, err)
	}
	if from, err := postgres.UpgradeSchema(ctx, parseURL(t, storeURL)); err != nil || from != 0 {
		t.Fatalf("upgrade: from %d, %v", from, err)
	}
	open(t, storeURL+"&create=off")
	if from, err := postgres.UpgradeSchema(ctx, parseURL(t, storeURL)); err != nil || from != migrations.Latest {
		t.Fatalf("second upgrade: from %d, %v", from, err)
	}
}

func TestNewerStoreIsRefused(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	server := testenv.Postgres(t)
	schema := server.Schema(t)
	storeURL := server.StoreURLIn(t, schema)
	open(t, storeURL)
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
	if status, err := postgres.SchemaStatus(context.WithoutCancel(ctx), parseURL(t, storeURL)); err != nil || status.Version != migrations.Latest+1 {
		t.Errorf("status: %+v, %v", status, err)
	}
}

// TestRestoredDump gives a store the mark of another server, which is what one that was restored from a dump carries.
func TestRestoredDump(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	server := testenv.Postgres(t)
	schema := server.Schema(t)
	storeURL := server.StoreURLIn(t, schema)
	b := open(t, storeURL)
	stored := write(t, b, resource("kept", "v"))
	w := watchAll(t, b)
	next(t, w)
	endOfSnapshot(t, w)
	cursor := w.Cursor()
	w.Close()
	if _, err := server.Connect(t).Exec(ctx, "update "+pgx.Identifier{schema, "store"}.Sanitize()+" set origin = 'elsewhere'"); err != nil {
		t.Fatal(err)
	}
	restored := open(t, storeURL)
	if got := read(t, restored, stored.Id); !proto.Equal(got, stored) {
		t.Errorf("read after the restore: %v, expected %v", got, stored)
	}
	resumer, _ := storage.As[storage.Resumer](restored)
	if _, err := resumer.WatchFrom(ctx, allTypes, allTenancies, "", cursor); !errors.Is(err, storage.ErrCompacted) {
		t.Errorf("resumed from before the restore: %v", err)
	}
	again := open(t, storeURL)
	w = watchAll(t, restored)
	next(t, w)
	endOfSnapshot(t, w)
	written := write(t, again, read(t, again, stored.Id))
	if event := next(t, w); event.GetUpsert().GetResource().GetVersion() != written.Version {
		t.Errorf("event after the restore: %v", event)
	}
}
