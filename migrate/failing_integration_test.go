//go:build integration

package migrate

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// TestTargetIsFull moves a store into a Postgres whose disk is too small. The migration reports the full disk, and continues when
// there is space.
func TestTargetIsFull(t *testing.T) {
	t.Parallel()
	disk := env.StartPostgresSmallDisk(t, 64)
	from := fixture.Open(t, "mem://"+rand.Text())
	to := fixture.Open(t, disk.StoreURL(t, "timeout=10s"))
	all := make([]*resourcepb.Resource, 4000)
	for i := range all {
		all[i] = small(fmt.Sprintf("thing-%04d", i), strings.Repeat("x", 1000))
	}
	fill(t, from, all)
	disk.Fill(t, 4)
	o := quick(Options{Live: true, CutoverLag: time.Hour, Batch: 200, Timeout: 10 * time.Second})
	r, err := Run(limited(t), from, to, o)
	if !errors.Is(err, storage.ErrInconsistent) || !strings.Contains(err.Error(), "No space left on device") {
		t.Fatalf("got %v, expected that no space is left", err)
	}
	if !r.HasJournal || r.Phase != Copying || r.Work.Creations == 0 || r.Work.Creations >= int64(len(all)) {
		t.Errorf("begun %v, phase %s, did %+v", r.HasJournal, r.Phase, r.Work)
	}
	before := r.Work.Creations
	disk.Free(t)
	o.Timeout = time.Minute
	if r, err = Run(limited(t), from, to, o); err != nil {
		t.Fatal(err)
	}
	if !r.IsResumed || r.Phase != Complete || r.Work.Creations != int64(len(all))-before || r.Work.Replacements != 0 {
		t.Errorf("resumed %v, phase %s, did %+v after %d", r.IsResumed, r.Phase, r.Work, before)
	}
	wantEqual(t, from, to)
}

// TestTargetForbids moves a store with a Postgres user without a permission.
func TestTargetForbids(t *testing.T) {
	t.Parallel()
	server := env.Postgres(t)
	for _, table := range []string{"resources", "changes", "journal"} {
		t.Run(table, func(t *testing.T) {
			t.Parallel()
			from := fixture.Open(t, "mem://"+rand.Text())
			all := zoo(100)
			fill(t, from, all)
			schema := server.Schema(t)
			who := newRole(t, server, server.StoreURLIn(t, schema))
			exec := func(sql string) {
				t.Helper()
				if _, err := server.Connect(t).Exec(limited(t), sql); err != nil {
					t.Fatalf("%s: %v", sql, err)
				}
			}
			// The migration closes the target by a trigger and its function, which only the owner of the tables can create.
			exec(fmt.Sprintf("grant usage, create on schema %s to %s; grant all on all sequences in schema %[1]s to %[2]s", schema, who.name))
			for _, owned := range []string{"resources", "changes", "journal", "store", "schema_version", "revoked"} {
				exec(fmt.Sprintf("alter table %s.%s owner to %s", schema, owned, who.name))
			}
			exec(fmt.Sprintf("revoke insert on %s.%s from %s", schema, table, who.name))
			to := fixture.Open(t, who.url)
			r, err := Run(limited(t), from, to, quick(Options{}))
			if err == nil || !strings.Contains(err.Error(), "permission denied for table "+table) {
				t.Fatalf("got %v, expected that it is not permitted", err)
			}
			if strings.Contains(err.Error(), who.password) {
				t.Errorf("the error contains the password: %v", err)
			}
			if begun := table != "journal"; r.HasJournal != begun || r.Work.Creations != 0 {
				t.Errorf("begun %v, did %+v", r.HasJournal, r.Work)
			}
			exec(fmt.Sprintf("grant insert on %s.%s to %s", schema, table, who.name))
			begun := r.HasJournal
			if r, err = Run(limited(t), from, to, quick(Options{})); err != nil {
				t.Fatal(err)
			}
			if r.IsResumed != begun || r.Work.Creations != int64(len(all)) {
				t.Errorf("resumed %v, did %+v", r.IsResumed, r.Work)
			}
			wantEqual(t, from, to)
		})
	}
}

// role is a user of a server. The end of the test deletes it.
type role struct{ name, password, url string }

// newRole creates a user without permissions, and the store at a URL, which the user does not own.
func newRole(t *testing.T, server *env.PostgresServer, storeURL string) role {
	t.Helper()
	b, err := storage.Open(limited(t), storeURL)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	r := role{name: "role_" + strings.ToLower(rand.Text()), password: rand.Text()}
	u, err := url.Parse(storeURL)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(r.name, r.password)
	r.url = u.String()
	name := pgx.Identifier{r.name}.Sanitize()
	if _, err := server.Connect(t).Exec(limited(t), "create role "+name+" login password '"+r.password+"'"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
		defer cancel()
		conn, err := pgx.Connect(ctx, server.URL)
		if err == nil {
			_, err = conn.Exec(ctx, "drop owned by "+name+"; drop role "+name)
			err = errors.Join(err, conn.Close(ctx))
		}
		if err != nil {
			t.Errorf("removing the role: %v", err)
		}
	})
	return r
}
