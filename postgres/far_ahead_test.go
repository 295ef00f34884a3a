//go:build integration

package postgres_test

import (
	"encoding/base64"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// TestFarAhead reads an eventual page while more than 10,000 changes are visible above a commit that stalls, and resumes a watch from it.
func TestFarAhead(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	g := newGate(t, env.Postgres(t), logged)
	other := fixture.Open(t, g.server.StoreURLIn(t, g.schema))
	b := fixture.Open(t, g.url)
	g.close()
	stopped := make(chan error, 1)
	go func() {
		_, err := b.WriteCAS(fixture.Context(t), fixture.Resource("stopped", "v"))
		stopped <- err
	}()
	g.await(1)
	ahead := fixture.Write(t, other, fixture.Resource("ahead", ""))
	version, err := base64.RawURLEncoding.DecodeString(ahead.Version)
	if err != nil {
		t.Fatal(err)
	}
	// As if the resource had been written often.
	changes := pgx.Identifier{g.schema, "changes"}.Sanitize()
	if _, err := g.conn.Exec(ctx, "insert into "+changes+`
    select nextval($1::regclass), created, writes, previous, previous_place, place, op, more, key, version, decode(md5(number::text), 'hex'), data
    from `+changes+", generate_series(1, 10001) as number where version = $2",
		pgx.Identifier{g.schema, "changes_seq"}.Sanitize(), version); err != nil {
		t.Fatal(err)
	}
	pager, _ := storage.As[storage.Pager](other)
	page, err := pager.ListPage(ctx, fixture.AllTypes, fixture.AllTenancies, "", storage.ListOptions{})
	if err != nil || len(page.Resources) != 1 {
		t.Fatalf("eventual page: %d resources, %v", len(page.Resources), err)
	}
	w := resume(t, other, page.Cursor)
	g.open()
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	last := fixture.Write(t, other, fixture.Resource(marker, ""))
	var names []string
	for len(names) == 0 || names[len(names)-1] != last.Id.Name {
		names = append(names, fixture.Next(t, w).GetUpsert().GetResource().GetId().GetName())
	}
	if len(names) != 2 || names[0] != "stopped" {
		t.Errorf("the watch returned %d events, the first of %q, expected only the stalled write and the last one", len(names), names[0])
	}
}
