//go:build integration

package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/faultproxy"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// TestRefusedAfterLost cuts off the answer to an update or a deletion during its commit, and revokes the permission to write
// meanwhile. The next attempt is refused, which is no result while the first one may still succeed.
func TestRefusedAfterLost(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(ctx context.Context, b storage.Backend, stored *resourcepb.Resource) error{
		"update": func(ctx context.Context, b storage.Backend, stored *resourcepb.Resource) error {
			stored.Data.Value = []byte("new")
			_, err := b.WriteCAS(ctx, stored)
			return err
		},
		"deletion": func(ctx context.Context, b storage.Backend, stored *resourcepb.Resource) error {
			return b.DeleteCAS(ctx, stored.Id, stored.Version)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			database := env.Postgres(t).Database(t)
			g := newGate(t, database, logged)
			as, role := database.Role(t)
			grantAll(t, g.conn, g.schema, role)
			proxy := faultproxy.New(t, database.Addr)
			b := fixture.Open(t, as.At(t, proxy.Addr()).StoreURLIn(t, g.schema, "application_name="+g.application))
			one := fixture.Write(t, b, fixture.Resource("one", "old"))

			g.close()
			changed := make(chan error, 1)
			go func() { changed <- change(fixture.Context(t), b, one) }()
			g.await(1)
			if _, err := g.conn.Exec(fixture.Context(t), "revoke update, delete on "+g.resources+" from "+role); err != nil {
				t.Fatal(err)
			}
			proxy.Cut()
			select {
			case err := <-changed:
				t.Fatalf("during its commit the %s ended with %v", name, err)
			case <-time.After(5 * time.Second): // longer than a statement may be in flight
			}
			g.open()
			if err := <-changed; err != nil {
				t.Errorf("the %s has been committed: %v", name, err)
			}
		})
	}
}
