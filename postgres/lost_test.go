//go:build integration

package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/faultproxy"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/postgres"
	"github.com/ashlar-dev/storage/resourcepb"
)

// behindProxy opens a store twice: through a proxy that breaks connections, and directly.
func behindProxy(t *testing.T) (proxy *faultproxy.Proxy, through, direct storage.Backend) {
	t.Helper()
	server := env.Postgres(t)
	proxy = faultproxy.New(t, server.Addr)
	schema := server.Schema(t)
	direct = fixture.Open(t, server.StoreURLIn(t, schema))
	through = fixture.Open(t, server.At(t, proxy.Addr()).StoreURLIn(t, schema))
	return proxy, through, direct
}

// expectOnce reads the writes of a name from w up to a marker, and expects one.
func expectOnce(t *testing.T, w storage.Watch, b storage.Backend, name string, want int) {
	t.Helper()
	fixture.Write(t, b, fixture.Resource(marker+unique(), "v"))
	got := 0
	for {
		event := fixture.Next(t, w)
		res := event.GetUpsert().GetResource()
		if event.GetDelete() != nil {
			res = event.GetDelete().GetResource()
		}
		switch {
		case res.GetId().GetName() == name:
			got++
		case len(res.GetId().GetName()) > len(marker) && res.Id.Name[:len(marker)] == marker:
			if got != want {
				t.Errorf("%d events of %s, expected %d", got, name, want)
			}
			return
		}
	}
}

// TestLostAnswer cuts the connection before the database receives a write, and after it has applied it.
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	proxy, through, direct := behindProxy(t)
	w := fixture.WatchAll(t, direct)
	endOfSnapshot(t, w)
	ctx := fixture.Context(t)
	for name, cut := range map[string]func([]byte) *faultproxy.Trap{"request": proxy.CutRequest, "answer": proxy.CutAnswer} {
		payload := "payload" + unique()
		trap := cut([]byte(payload))
		created := fixture.Write(t, through, fixture.Resource(name, payload))
		sprung(t, trap)
		if got := read(t, direct, created.Id); !proto.Equal(got, created) {
			t.Errorf("%s: created %v, stored %v", name, created, got)
		}
		expectOnce(t, w, direct, name, 1)

		payload = "payload" + unique()
		trap = cut([]byte(payload))
		created.Data.Value = []byte(payload)
		updated := fixture.Write(t, through, created)
		sprung(t, trap)
		if got := read(t, direct, created.Id); !proto.Equal(got, updated) {
			t.Errorf("%s: updated to %v, stored %v", name, updated, got)
		}
		expectOnce(t, w, direct, name, 1)

		// A write that must fail fails, however often it is sent.
		payload = "payload" + unique()
		trap = cut([]byte(payload))
		created.Data.Value = []byte(payload)
		if _, err := through.WriteCAS(ctx, created); !isCASFailure(err) {
			t.Errorf("%s: a write of an old version: %v", name, err)
		}
		sprung(t, trap)

		trap = cut([]byte(name))
		if err := through.DeleteCAS(ctx, updated.Id, updated.Version); err != nil {
			t.Errorf("%s: delete: %v", name, err)
		}
		sprung(t, trap)
		if _, err := direct.Read(ctx, storage.StrongConsistency, updated.Id); !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("%s: after the delete: %v", name, err)
		}
		expectOnce(t, w, direct, name, 1)
	}
}

func sprung(t *testing.T, trap *faultproxy.Trap) {
	t.Helper()
	select {
	case <-trap.Sprung():
	case <-time.After(fixture.Timeout):
		t.Fatal("the connection was not cut")
	}
}

// TestLostAnswerOfTheOverwritten holds an answer back until others have written again. The write nevertheless succeeded.
func TestLostAnswerOfTheOverwritten(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	proxy, through, direct := behindProxy(t)
	for _, then := range []string{"overwritten", "deleted", "created anew"} {
		payload := "payload" + unique()
		trap := proxy.HoldAnswer([]byte(payload))
		type answer struct {
			res *resourcepb.Resource
			err error
		}
		answered := make(chan answer, 1)
		go func() {
			res, err := through.WriteCAS(ctx, fixture.Resource(then, payload))
			answered <- answer{res, err}
		}()
		var stored *resourcepb.Resource
		fixture.Eventually(t, "the write to happen", func() bool {
			var err error
			stored, err = direct.Read(ctx, storage.StrongConsistency, fixture.Resource(then, "").Id)
			return err == nil
		})

		version := stored.Version
		if then == "overwritten" {
			fixture.Write(t, direct, stored)
		} else if err := direct.DeleteCAS(ctx, stored.Id, stored.Version); err != nil {
			t.Fatal(err)
		}
		if then == "created anew" {
			fixture.Write(t, direct, fixture.Resource(then, "v"))
		}
		trap.Cut()
		if got := <-answered; got.err != nil || got.res.Version != version {
			t.Errorf("%s: the write returned %v, %v; it was stored at %s", then, got.res, got.err, version)
		}
	}
}

// TestSilentConnection holds an answer back for ever. The outcome is resolved over another connection.
func TestSilentConnection(t *testing.T) {
	t.Parallel()
	proxy, through, direct := behindProxy(t)
	payload := "payload" + unique()
	trap := proxy.HoldAnswer([]byte(payload))
	created := fixture.Write(t, through, fixture.Resource("one", payload))
	sprung(t, trap)
	if got := read(t, direct, created.Id); !proto.Equal(got, created) {
		t.Errorf("created %v, stored %v", created, got)
	}
	trap = proxy.HoldAnswer([]byte("one"))
	if got := read(t, through, created.Id); !proto.Equal(got, created) {
		t.Errorf("created %v, read %v", created, got)
	}
	sprung(t, trap)
}

// TestLostCommit does the same with transactions, where the COMMIT is lost.
func TestLostCommit(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	proxy, through, direct := behindProxy(t)
	transactor, _ := storage.As[storage.Transactor](through)
	w := fixture.WatchAll(t, direct)
	endOfSnapshot(t, w)
	for name, cut := range map[string]func([]byte) *faultproxy.Trap{"request": proxy.CutRequest, "answer": proxy.CutAnswer} {
		doomed := fixture.Write(t, direct, fixture.Resource("doomed-"+name, "v"))
		payload := "payload" + unique()
		trap := cut([]byte(payload))
		results, err := transactor.Commit(ctx, []storage.Op{
			{Write: fixture.Resource(name, payload)},
			{Delete: doomed.Id, Version: doomed.Version},
			{Check: fixture.Resource("nothing", "").Id},
		})
		sprung(t, trap)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := read(t, direct, results[0].Id); !proto.Equal(got, results[0]) {
			t.Errorf("%s: committed %v, stored %v", name, results[0], got)
		}
		if _, err := direct.Read(ctx, storage.StrongConsistency, doomed.Id); !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("%s: after the delete: %v", name, err)
		}
		expectOnce(t, w, direct, name, 1)
	}
	// A transaction of deletions leaves no version behind, and must be distinguished from another session's.
	doomed := fixture.Write(t, direct, fixture.Resource("doomed", "v"))
	trap := proxy.CutAnswer([]byte("doomed"))
	if _, err := transactor.Commit(ctx, []storage.Op{{Delete: doomed.Id, Version: doomed.Version}}); err != nil {
		t.Errorf("a delete alone: %v", err)
	}
	sprung(t, trap)
}

// TestLostBatch cuts off many writes at once, repeatedly.
func TestLostBatch(t *testing.T) {
	t.Parallel()
	proxy, through, direct := behindProxy(t)
	c := newChurn(t, 30)
	followers := []*follower{
		follow(t, "watch through the proxy", fixture.WatchAll(t, through)),
		follow(t, "direct watch", fixture.WatchAll(t, direct)),
	}
	for i := range 16 {
		c.writer(through, uint64(i), 0)
	}
	for i := range 15 {
		before := c.successes.Load()
		fixture.Eventually(t, "writes to go on", func() bool { return c.successes.Load() >= before+20 })
		if i%3 == 0 {
			proxy.Cut()
			continue
		}
		trap := proxy.CutAnswer([]byte("key-"))
		sprung(t, trap)
	}
	close(c.stop)
	c.finish(direct, followers...)
}

// TestNoDatabase makes the database unavailable for ever, before a call and in the middle of it.
func TestNoDatabase(t *testing.T) {
	t.Parallel()
	proxy, through, direct := behindProxy(t)
	stored := fixture.Write(t, through, fixture.Resource("one", "v"))
	for _, take := range []struct {
		how  string
		away func()
	}{{"refuses", proxy.Refuse}, {"is silent", proxy.Stall}} {
		take.away()
		var group sync.WaitGroup
		for name, call := range calls(through, stored) {
			group.Go(func() {
				if err := call(fixture.CallTimeout(context.Background(), t, time.Second)); !isInconsistent(err) {
					t.Errorf("the database %s, %s: %v", take.how, name, err)
				}
			})
		}
		group.Wait()
		proxy.Resume()
		if got := read(t, through, stored.Id); !proto.Equal(got, read(t, direct, stored.Id)) {
			t.Errorf("the database %s, afterwards: %v", take.how, got)
		}
	}
	// In the middle of a call the outcome is unknown.
	payload := "payload" + unique()
	trap := proxy.HoldAnswer([]byte(payload))
	ctx, startTimeout := postgres.DelayedTimeout(t)
	result := make(chan error, 1)
	go func() {
		_, err := through.WriteCAS(ctx, fixture.Resource("two", payload))
		result <- err
	}()
	sprung(t, trap)
	proxy.Stall() // no other connection resolves the outcome
	fixture.Eventually(t, "the write to be applied", func() bool { return fixture.Stored(t, direct, fixture.ID("two")) != nil })
	startTimeout(time.Second)
	if err := <-result; !isInconsistent(err) {
		t.Errorf("a write without an answer: %v", err)
	}
	trap.Cut()
	proxy.Resume()
	if got := read(t, direct, fixture.Resource("two", "").Id); !bytes.Equal(got.Data.Value, []byte(payload)) {
		t.Errorf("it was applied: %v", got)
	}
}

// calls returns every call that sends a query.
func calls(b storage.Backend, stored *resourcepb.Resource) map[string]func(context.Context) error {
	pager, _ := storage.As[storage.Pager](b)
	transactor, _ := storage.As[storage.Transactor](b)
	read := func(consistency storage.ReadConsistency) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := b.Read(ctx, consistency, stored.Id)
			return err
		}
	}
	return map[string]func(context.Context) error{
		"read":          read(storage.StrongConsistency),
		"eventual read": read(storage.EventualConsistency),
		"write": func(ctx context.Context) error {
			_, err := b.WriteCAS(ctx, fixture.Resource(fmt.Sprint("new", unique()), "v"))
			return err
		},
		"delete": func(ctx context.Context) error { return b.DeleteCAS(ctx, stored.Id, "old") },
		"list": func(ctx context.Context) error {
			_, err := b.List(ctx, storage.StrongConsistency, fixture.AllTypes, fixture.AllTenancies, "")
			return err
		},
		"page": func(ctx context.Context) error {
			_, err := pager.ListPage(ctx, fixture.AllTypes, fixture.AllTenancies, "", storage.ListOptions{})
			return err
		},
		"watch": func(ctx context.Context) error {
			w, err := b.WatchList(ctx, fixture.AllTypes, fixture.AllTenancies, "")
			if err == nil {
				w.Close()
			}
			return err
		},
		"owner references": func(ctx context.Context) error {
			_, err := b.OwnerReferences(ctx, stored.Id)
			return err
		},
		"commit": func(ctx context.Context) error {
			_, err := transactor.Commit(ctx, []storage.Op{{Write: fixture.Resource(fmt.Sprint("new", unique()), "v")}})
			return err
		},
	}
}

// TestSilentIntroduction delays the answer to a session's first query. The write continues over another connection.
func TestSilentIntroduction(t *testing.T) {
	t.Parallel()
	proxy, through, direct := behindProxy(t)
	trap := proxy.HoldAnswer([]byte("::bigint, pg_backend_pid(), ("))
	created := fixture.Write(t, through, fixture.Resource("one", "v"))
	sprung(t, trap)
	if got := read(t, direct, created.Id); !proto.Equal(got, created) {
		t.Errorf("created %v, stored %v", created, got)
	}
}

// TestLostRequestAfterRetention loses a request of a handle that was idle for longer than the retention. The handle determines that
// the request was not applied.
func TestLostRequestAfterRetention(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	proxy := faultproxy.New(t, server.Addr)
	schema := server.Schema(t)
	busy := openForgetful(t, server.StoreURLIn(t, schema), 4*time.Second)
	idle := openForgetful(t, server.At(t, proxy.Addr()).StoreURLIn(t, schema, "pool_max_conns=1"), 4*time.Second)
	stored := fixture.Write(t, idle, fixture.Resource("one", "v"))
	other := fixture.Write(t, busy, fixture.Resource("other", "v"))
	conn := server.Connect(t)
	named := func(table string) string { return pgx.Identifier{schema, table}.Sanitize() }
	var last int64
	if err := conn.QueryRow(ctx, "select max(revision) from "+named("changes")).Scan(&last); err != nil {
		t.Fatal(err)
	}
	fixture.Eventually(t, "the changes of that time to be deleted", func() bool {
		other = fixture.Write(t, busy, other)
		var oldest int64
		if err := conn.QueryRow(ctx, "select oldest from "+named("store")).Scan(&oldest); err != nil {
			t.Fatal(err)
		}
		return oldest > last
	})

	payload := "payload" + unique()
	stored.Data.Value = []byte(payload)
	trap := proxy.CutRequest([]byte(payload))
	updated := fixture.Write(t, idle, stored)
	sprung(t, trap)
	if got := read(t, busy, stored.Id); got.Version != updated.Version {
		t.Errorf("stored is %s, written was %s", got.Version, updated.Version)
	}
}
