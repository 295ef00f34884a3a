//go:build integration

package postgres_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/faultproxy"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/postgres"
	"github.com/ashlar-dev/storage/resourcepb"
)

// lockRow locks the row of a resource in a foreign session, until the returned transaction ends.
func lockRow(t *testing.T, server *env.PostgresServer, schema string, id *resourcepb.ID) pgx.Tx {
	t.Helper()
	tx, err := server.Connect(t).Begin(fixture.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	tag, err := tx.Exec(fixture.Context(t), "select from "+pgx.Identifier{schema, "resources"}.Sanitize()+" where key = $1 for update", key.Of(id).Bytes())
	if err != nil || tag.RowsAffected() != 1 {
		t.Fatalf("locked %d rows, %v", tag.RowsAffected(), err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

// halfDone is a batch of three writes. One was applied and two were not, and the answer is held back.
type halfDone struct {
	server     *env.PostgresServer
	schema     string
	proxy      *faultproxy.Proxy
	held       *faultproxy.Trap
	good, bad  chan error // of the calls
	badKey     *resourcepb.ID
	badPayload []byte

	startTimeout func(timeout time.Duration) // of the calls
}

// newHalfDone creates such a batch. It is not visible from outside whether a write waits for the write ahead, so on a busy machine it takes
// more than one attempt.
func newHalfDone(t *testing.T) *halfDone {
	t.Helper()
	for range 10 {
		if h := tryHalfDone(t); h != nil {
			return h
		}
	}
	t.Fatal("the writes were never sent together")
	return nil
}

// tryHalfDone returns nil if the writes were not sent together. A write of another key goes ahead, and its answer is held back, so
// that later writes wait and are batched.
func tryHalfDone(t *testing.T) *halfDone {
	t.Helper()
	server := env.Postgres(t)
	h := &halfDone{
		server: server, schema: server.Schema(t), proxy: faultproxy.New(t, server.Addr),
		good: make(chan error, 1), bad: make(chan error, 2), badPayload: []byte("bad" + unique()),
	}
	direct := fixture.Open(t, server.StoreURLIn(t, h.schema))
	through := fixture.Open(t, server.At(t, h.proxy.Addr()).StoreURLIn(t, h.schema))
	var ctx context.Context
	ctx, h.startTimeout = postgres.DelayedTimeout(t)
	var group sync.WaitGroup
	t.Cleanup(group.Wait)

	spacer := fixture.Write(t, direct, fixture.Resource("spacer", "old"))
	good := fixture.Write(t, direct, fixture.Resource("good", "old"))
	var bad []*resourcepb.Resource
	for _, name := range []string{"bad", "worse"} {
		res := fixture.Write(t, direct, fixture.Resource(name, "old"))
		fixture.Write(t, direct, res) // so the version in res is not the stored one
		res.Data.Value = h.badPayload
		bad = append(bad, res)
	}
	payload := []byte("good" + unique())
	good.Data.Value, h.badKey = payload, bad[0].Id

	spacer.Data.Value = []byte("spacer" + unique())
	ahead := h.proxy.HoldAnswer(spacer.Data.Value)
	h.held = h.proxy.HoldAnswer(payload)
	begin := func(res *resourcepb.Resource, answer chan<- error) {
		group.Go(func() {
			_, err := through.WriteCAS(ctx, res)
			answer <- err
		})
	}
	first := make(chan error, 1)
	begin(spacer, first)
	sprung(t, ahead)
	begin(good, h.good)
	for _, res := range bad {
		begin(res, h.bad)
	}
	lasts(time.Second) // the three wait for the one ahead
	ahead.Cut()
	if err := <-first; err != nil {
		t.Fatalf("the write ahead: %v", err)
	}
	sprung(t, h.held)
	fixture.Eventually(t, "the write to happen", func() bool {
		return string(read(t, direct, good.Id).Data.Value) == string(payload)
	})

	select {
	case <-h.bad:
		h.held.Cut()
		return nil
	default:
		return h
	}
}

// TestLostBatchMeetsLock loses the answer to the batch, and a foreign session holds the row of an unapplied write when it is
// repeated. The applied write must not be repeated.
func TestLostBatchMeetsLock(t *testing.T) {
	t.Parallel()
	h := newHalfDone(t)
	lock := lockRow(t, h.server, h.schema, h.badKey)
	h.held.Cut()
	if err := <-h.good; err != nil {
		t.Errorf("the applied write, while a foreign session locks the row of another write in its batch: %v", err)
	}
	if err := lock.Rollback(fixture.Context(t)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-h.bad; !isCASFailure(err) {
			t.Errorf("a write of an old version: %v", err)
		}
	}
}

// TestLostBatchAtTheDeadline loses the answer to the batch, and then the database is silent until the deadline. The write that is
// known to be applied returns success.
func TestLostBatchAtTheDeadline(t *testing.T) {
	t.Parallel()
	h := newHalfDone(t)
	again := h.proxy.HoldAnswer(h.badPayload)
	h.held.Cut()
	sprung(t, again)
	h.proxy.Stall()
	defer h.proxy.Resume()
	h.startTimeout(5 * time.Second)
	if err := <-h.good; err != nil {
		t.Errorf("the write that is known to be applied: %v", err)
	}
	for range 2 {
		if err := <-h.bad; !isInconsistent(err) {
			t.Errorf("a write of an old version, without an answer: %v", err)
		}
	}
}
