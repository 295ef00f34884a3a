//go:build integration

package postgres_test

import (
	"testing"
	"time"

	"github.com/ashlar-dev/storage/internal/faultproxy"
	"github.com/ashlar-dev/storage/internal/storetest"
	"github.com/ashlar-dev/storage/internal/testenv"
)

// TestRefusedAfterLostUpdate cuts the answer to an update off that is in its commit, and takes the right to write away meanwhile. The
// next attempt is refused; but that is no answer as long as the first one may still succeed.
func TestRefusedAfterLostUpdate(t *testing.T) {
	t.Parallel()
	database := testenv.Postgres(t).Database(t)
	g := newGate(t, database, logged)
	as, role := database.Role(t)
	grantAll(t, g.conn, g.schema, role)
	proxy := faultproxy.New(t, database.Addr)
	b := storetest.Open(t, as.At(t, proxy.Addr()).StoreURLIn(t, g.schema, "application_name="+g.application))
	one := storetest.Write(t, b, storetest.Resource("one", "old"))

	g.close()
	one.Data.Value = []byte("new")
	updated := make(chan error, 1)
	go func() { _, err := b.WriteCAS(storetest.Context(t), one); updated <- err }()
	g.await(1)
	if _, err := g.conn.Exec(storetest.Context(t), "revoke update on "+g.resources+" from "+role); err != nil {
		t.Fatal(err)
	}
	proxy.Cut()
	select {
	case err := <-updated:
		t.Fatalf("while its commit was under way the update ended with %v", err)
	case <-time.After(5 * time.Second): // longer than a statement may be on its way
	}
	g.open()
	if err := <-updated; err != nil {
		t.Errorf("the update has been committed: %v", err)
	}
}
