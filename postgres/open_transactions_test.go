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
	"github.com/ashlar-dev/storage/internal/key"
	"github.com/ashlar-dev/storage/internal/message"
	"github.com/ashlar-dev/storage/internal/testenv"
	"github.com/ashlar-dev/storage/resourcepb"
)

// writeBySQL stores a resource in a transaction of the test's own.
func writeBySQL(t *testing.T, tx pgx.Tx, schema string, res *resourcepb.Resource) {
	t.Helper()
	ctx := testContext(t)
	data, err := message.Encode(res)
	if err != nil {
		t.Fatal(err)
	}
	k, token := key.Of(res.Id).Bytes(), bytes.Repeat([]byte{7}, 16)
	if _, err := tx.Exec(ctx, "insert into "+pgx.Identifier{schema, "resources"}.Sanitize()+
		" (key, uid, version, group_version, data) values ($1, $2, $3, $4, $5)",
		k, []byte(res.Id.Uid), token, []byte(res.Id.Type.GroupVersion), data); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(ctx, "insert into "+pgx.Identifier{schema, "changes"}.Sanitize()+
		" (seq, op, key, version, token, data) select nextval('"+pgx.Identifier{schema, "changes_seq"}.Sanitize()+"'), 1, $1, $2, $2, $3",
		k, token, data); err != nil {
		t.Fatal(err)
	}
}

func expect(t *testing.T, who string, w storage.Watch, want *resourcepb.Resource) {
	t.Helper()
	event := next(t, w)
	got := event.GetUpsert().GetResource()
	if got == nil {
		t.Fatalf("%s: event %v, expected a write of %s", who, event, want.Id.Name)
	}
	if got.Id.Name != want.Id.Name || want.Version != "" && !proto.Equal(got, want) {
		t.Fatalf("%s: event %v, expected %v", who, event, want)
	}
}

// TestOpenTransaction keeps a transaction open, with a change of its own, while others write, list, watch and resume.
func TestOpenTransaction(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	server := testenv.Postgres(t)
	schema := server.Schema(t)
	storeURL := server.StoreURLIn(t, schema)
	b, other := open(t, storeURL), open(t, storeURL)
	before, elsewhere := watchAll(t, b), watchAll(t, other)
	endOfSnapshot(t, before)
	endOfSnapshot(t, elsewhere)
	write(t, b, resource("first", "v"))
	expect(t, "watch", before, resource("first", "v"))
	expect(t, "watch of another handle", elsewhere, resource("first", "v"))

	tx, err := server.Connect(t).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	late := resource("late", "v")
	writeBySQL(t, tx, schema, late)

	// Others go on at once.
	second := write(t, b, resource("second", "v"))
	expect(t, "watch", before, second)
	expect(t, "watch of another handle", elsewhere, second)
	afterSecond := before.Cursor()
	third := write(t, other, resource("third", "v"))
	expect(t, "watch", before, third)
	expect(t, "watch of another handle", elsewhere, third)

	pager, _ := storage.As[storage.Pager](b)
	page, err := pager.ListPage(ctx, allTypes, allTenancies, "", storage.ListOptions{})
	if err != nil || len(page.Resources) != 3 {
		t.Fatalf("list beside the open transaction: %v, %v", page.Resources, err)
	}
	during := watchAll(t, b)
	for range 3 {
		next(t, during)
	}
	endOfSnapshot(t, during)
	fourth := write(t, other, resource("fourth", "v"))

	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	fifth := write(t, b, resource("fifth", "v"))

	for _, w := range []struct {
		who   string
		watch storage.Watch
	}{
		{"watch", before},
		{"watch of another handle", elsewhere},
		{"watch begun beside it", during},
		{"watch from the list", resume(t, other, page.Cursor)},
	} {
		expectSet(t, w.who, w.watch, fourth, late, fifth)
	}
	expectSet(t, "watch from an event's cursor", resume(t, b, afterSecond), third, fourth, late, fifth)
}

func resume(t *testing.T, b storage.Backend, cursor string) storage.Watch {
	t.Helper()
	resumer, _ := storage.As[storage.Resumer](b)
	w, err := resumer.WatchFrom(testContext(t), allTypes, allTenancies, "", cursor)
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
		event := next(t, w)
		name := event.GetUpsert().GetResource().GetId().GetName()
		if !left[name] {
			t.Fatalf("%s: unexpected or repeated event %v; still missing: %v", who, event, left)
		}
		delete(left, name)
	}
}

// TestStalledCommit stalls a transaction of the adapter itself: it has written one key and waits for another.
func TestStalledCommit(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	server := testenv.Postgres(t)
	schema := server.Schema(t)
	b := open(t, server.StoreURLIn(t, schema, "application_name="+schema))
	held := write(t, b, resource("held", "v"))
	w := watchAll(t, b)
	next(t, w)
	endOfSnapshot(t, w)

	observer := server.Connect(t) // a transaction sees the activity of its beginning
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
		_, err := transactor.Commit(ctx, []storage.Op{{Write: resource("a", "v")}, {Write: held}, {Write: resource("z", "v")}})
		stalled <- err
	}()
	waiting := func(n int) func() bool {
		return func() bool {
			var waiting int
			if err := observer.QueryRow(ctx, "select count(*) from pg_stat_activity where application_name = $1 and wait_event_type = 'Lock'", schema).Scan(&waiting); err != nil {
				t.Fatal(err)
			}
			return waiting >= n
		}
	}
	eventually(t, "the transaction to wait for the row", waiting(1))
	// A plain write of the same row waits too, and holds nobody up.
	go func() { stalled <- b.DeleteCAS(ctx, held.Id, "no version") }()
	eventually(t, "the delete to wait for the row", waiting(2))
	for range 20 {
		expect(t, "watch beside the stalled transaction", w, write(t, b, resource("other"+unique(), "v")))
	}
	// One that gives up leaves by itself.
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	if _, err := b.WriteCAS(short, held); !isInconsistent(err) {
		t.Errorf("a write of the held row: %v", err)
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
		t.Errorf("%d of the two failed, expected the delete alone", failures)
	}
	expectSet(t, "watch after the stall", w, resource("a", ""), held, resource("z", ""))
}
