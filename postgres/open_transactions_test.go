//go:build integration

package postgres_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// noteBySQL makes a transaction of the test record, like every writer, the numbers that it is going to draw.
func noteBySQL(t *testing.T, tx pgx.Tx, schema string) {
	t.Helper()
	changes := pgx.Identifier{schema, "changes"}.Sanitize()
	if _, err := tx.Exec(fixture.Context(t), "select pg_advisory_xact_lock_shared(('"+changes+"'::regclass::oid::bigint & 2147483647)::int, (last_value & 2147483647)::int) from "+
		pgx.Identifier{schema, "changes_seq"}.Sanitize()); err != nil {
		t.Fatal(err)
	}
}

// writeBySQL stores a resource in a transaction of the test, like a backend.
func writeBySQL(t *testing.T, tx pgx.Tx, schema string, res *resourcepb.Resource) {
	t.Helper()
	ctx := fixture.Context(t)
	data, err := codec.Encode(res)
	if err != nil {
		t.Fatal(err)
	}
	k, token := key.Of(res.Id).Bytes(), bytes.Repeat([]byte{7}, 16)
	if _, err := tx.Exec(ctx, "insert into "+pgx.Identifier{schema, "resources"}.Sanitize()+
		" (key, uid, version, group_version, data) values ($1, $2, $3, $4, $5)",
		k, []byte(res.Id.Uid), token, []byte(res.Id.Type.GroupVersion), data); err != nil {
		t.Fatal(err)
	}
	noteBySQL(t, tx, schema)
	if _, err := tx.Exec(ctx, "insert into "+pgx.Identifier{schema, "changes"}.Sanitize()+
		" (revision, place, more, op, key, version, token, data, created, writes) select next, 0, false, 1, $1, $2, $2, $3, next, 1 from nextval('"+pgx.Identifier{schema, "changes_seq"}.Sanitize()+"') as next",
		k, token, data); err != nil {
		t.Fatal(err)
	}
}

func expect(t *testing.T, who string, w storage.Watch, want *resourcepb.Resource) {
	t.Helper()
	event := fixture.Next(t, w)
	got := event.GetUpsert().GetResource()
	if got == nil {
		t.Fatalf("%s: event %v, expected a write of %s", who, event, want.Id.Name)
	}
	if got.Id.Name != want.Id.Name || want.Version != "" && !proto.Equal(got, want) {
		t.Fatalf("%s: event %v, expected %v", who, event, want)
	}
}

// TestStalledWriter stops a writer between its number and its commit while others write, list eventually, watch and resume.
// All of that continues. Changes after the writer's number are returned after it, in one order, and changes that a list already contained are
// not repeated.
func TestStalledWriter(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	schema := server.Schema(t)
	storeURL := server.StoreURLIn(t, schema)
	b, other := fixture.Open(t, storeURL), fixture.Open(t, storeURL)
	before, elsewhere := fixture.WatchAll(t, b), fixture.WatchAll(t, other)
	endOfSnapshot(t, before)
	endOfSnapshot(t, elsewhere)
	fixture.Write(t, b, fixture.Resource("first", "v"))
	expect(t, "watch", before, fixture.Resource("first", "v"))
	expect(t, "watch of another handle", elsewhere, fixture.Resource("first", "v"))

	tx, err := server.Connect(t).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	late := fixture.Resource("late", "v")
	writeBySQL(t, tx, schema, late)

	// Others continue at once, without its change.
	second := fixture.Write(t, b, fixture.Resource("second", "v"))
	third := fixture.Write(t, other, fixture.Resource("third", "v"))

	pager, _ := storage.As[storage.Pager](b)
	page, err := pager.ListPage(ctx, fixture.AllTypes, fixture.AllTenancies, "", storage.ListOptions{})
	if err != nil || len(page.Resources) != 3 {
		t.Fatalf("list beside the open transaction: %v, %v", page.Resources, err)
	}
	during := resume(t, b, page.Cursor)
	fourth := fixture.Write(t, other, fixture.Resource("fourth", "v"))

	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	fifth := fixture.Write(t, b, fixture.Resource("fifth", "v"))

	for _, w := range []struct {
		who   string
		watch storage.Watch
		want  []*resourcepb.Resource
	}{
		{"watch", before, []*resourcepb.Resource{late, second, third, fourth, fifth}},
		{"watch of another handle", elsewhere, []*resourcepb.Resource{late, second, third, fourth, fifth}},
		{"watch begun beside it", during, []*resourcepb.Resource{late, fourth, fifth}},
		{"watch from the list", resume(t, other, page.Cursor), []*resourcepb.Resource{late, fourth, fifth}},
		{"watch from the cursor of a watch in between", resume(t, b, resumeAt(t, during, late)), []*resourcepb.Resource{fourth, fifth}},
	} {
		for _, want := range w.want {
			if w.watch == during && want == late {
				continue // it was read for its cursor
			}
			expect(t, w.who, w.watch, want)
		}
	}
}

// resumeAt reads the next event and returns its cursor.
func resumeAt(t *testing.T, w storage.Watch, want *resourcepb.Resource) string {
	t.Helper()
	expect(t, "watch begun beside it", w, want)
	return w.Cursor()
}

// TestOpenTransaction keeps a foreign transaction open that locks a row and has written to a table of its own. No event waits for
// it.
func TestOpenTransaction(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	schema := server.Schema(t)
	storeURL := server.StoreURLIn(t, schema)
	b, other := fixture.Open(t, storeURL), fixture.Open(t, storeURL)
	held := fixture.Write(t, b, fixture.Resource("held", "v"))
	w := fixture.WatchAll(t, other)
	expect(t, "snapshot", w, held)
	endOfSnapshot(t, w)
	tx, err := server.Connect(t).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{
		"select from " + pgx.Identifier{schema, "resources"}.Sanitize() + " for update",
		"create table " + pgx.Identifier{schema, "theirs"}.Sanitize() + " as select 1 as n",
	} {
		if _, err := tx.Exec(ctx, sql); err != nil {
			t.Fatal(err)
		}
	}
	waits := make(chan error, 1)
	go func() {
		_, err := b.WriteCAS(ctx, held)
		waits <- err
	}()
	for _, by := range []storage.Backend{b, other, b} {
		expect(t, "watch beside the transaction", w, fixture.Write(t, by, fixture.Resource("free"+unique(), "v")))
	}
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-waits; err != nil {
		t.Errorf("the write of the locked row: %v", err)
	}
}

func resume(t *testing.T, b storage.Backend, cursor string) storage.Watch {
	t.Helper()
	resumer, _ := storage.As[storage.Resumer](b)
	w, err := resumer.WatchFrom(fixture.Context(t), fixture.AllTypes, fixture.AllTenancies, "", cursor)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

// expectSet reads writes of exactly these resources, in any order.
func expectSet(t *testing.T, who string, w storage.Watch, want ...*resourcepb.Resource) {
	t.Helper()
	left := map[string]bool{}
	for _, res := range want {
		left[res.Id.Name] = true
	}
	for range want {
		event := fixture.Next(t, w)
		name := event.GetUpsert().GetResource().GetId().GetName()
		if !left[name] {
			t.Fatalf("%s: unexpected or repeated event %v; still missing: %v", who, event, left)
		}
		delete(left, name)
	}
}

// TestStalledCommit stalls a transaction of the adapter itself, which has written one key and waits for another.
func TestStalledCommit(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	schema := server.Schema(t)
	b := fixture.Open(t, server.StoreURLIn(t, schema, "application_name="+schema))
	held, late := fixture.Write(t, b, fixture.Resource("held", "v")), fixture.Write(t, b, fixture.Resource("late", "v"))
	w := fixture.WatchAll(t, b)
	fixture.Next(t, w)
	fixture.Next(t, w)
	endOfSnapshot(t, w)

	tx, err := server.Connect(t).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(ctx, "select from "+pgx.Identifier{schema, "resources"}.Sanitize()+" for update"); err != nil {
		t.Fatal(err)
	}
	transactor, _ := storage.As[storage.Transactor](b)
	stalled := make(chan error, 2)
	go func() {
		_, err := transactor.Commit(ctx, []storage.Op{{Write: fixture.Resource("a", "v")}, {Write: held}, {Write: fixture.Resource("z", "v")}})
		stalled <- err
	}()
	// A plain write of the same row waits as well, and blocks no other call.
	go func() { _, err := b.WriteCAS(ctx, fixture.Resource("held", "created")); stalled <- err }()
	for range 20 {
		expect(t, "watch beside the stalled transaction", w, fixture.Write(t, b, fixture.Resource("other"+unique(), "v")))
	}
	// A call at its deadline returns by itself. The delete may be applied later, so it is one of another resource.
	if err := b.DeleteCAS(fixture.CallTimeout(ctx, t, 300*time.Millisecond), late.Id, late.Version); !isInconsistent(err) {
		t.Errorf("a delete of the locked row: %v", err)
	}
	// A call that requires another version than the stored one is refused at once, whatever happens to the row.
	if err := b.DeleteCAS(ctx, held.Id, "another version"); !isCASFailure(err) {
		t.Errorf("a delete of another version of the locked row: %v", err)
	}
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	var failures int
	for range 2 {
		if err := <-stalled; err != nil {
			failures++
			if !isCASFailure(err) {
				t.Error(err)
			}
		}
	}
	if failures != 1 {
		t.Errorf("%d of the two failed, expected the creation alone", failures)
	}
	expectSet(t, "watch after the stall", without{w, late}, fixture.Resource("a", ""), held, fixture.Resource("z", ""))
}

// without is a watch without the deletion of a resource.
type without struct {
	storage.Watch
	res *resourcepb.Resource
}

func (w without) Next(ctx context.Context) (*resourcepb.WatchEvent, error) {
	for {
		ev, err := w.Watch.Next(ctx)
		if err != nil || ev.GetDelete().GetResource().GetId().GetName() != w.res.Id.Name {
			return ev, err
		}
	}
}
