//go:build integration

package postgres

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// TestPollsAfterABookmark polls while one of several writers is always pending. Polls read the notes of the writers for a requested bookmark, and
// stop when it is answered.
func TestPollsAfterABookmark(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	schema := server.Schema(t)
	log := &statementLog{}
	b, quiet := openHandle(t, ctx, server.StoreURLIn(t, schema)), openQuiet(t, ctx, server, schema, log)
	createdResource(t, ctx, b, "first")
	r := &run{source: quiet.handle.source, in: &inbox{signal: make(chan struct{}, 1)}, publish: func([]*event, position) {}}
	if err := r.begin(ctx); err != nil {
		t.Fatal(err)
	}
	conns := []*pgx.Conn{server.Connect(t), server.Connect(t)}
	last := b.pending(t, ctx, conns[1], mutationOf(t, driver.Write, orderResource("pending", "")))
	const requestInterval = 5
	var target position
	for n := range 2 * requestInterval {
		next := b.pending(t, ctx, conns[n%2], mutationOf(t, driver.Write, orderResource(fmt.Sprint("pending-", n), "")))
		createdResource(t, ctx, b, fmt.Sprint("visible-", n))
		if err := last.Commit(ctx); err != nil {
			t.Fatal(err)
		}
		last = next
		var err error
		if n%requestInterval == 0 {
			target, err = r.Newest(ctx)
		}
		if err != nil {
			t.Fatal(err)
		}
		log.take("")
		if _, err := r.poll(ctx); err != nil {
			t.Fatal(err)
		}
		notes := len(log.take("pg_locks"))
		switch step := n % requestInterval; { // the writer that is pending during the request has committed by the next step
		case step < 2 && notes == 0:
			t.Errorf("poll %d has not read the notes for the bookmark", n)
		case step >= 2 && notes > 0:
			t.Errorf("poll %d has read the notes after the bookmark", n)
		}
		if reached := r.HasReached(r.at, target); reached != (n%requestInterval > 0) {
			t.Errorf("poll %d: reached the position of the bookmark: %t", n, reached)
		}
	}
	if err := last.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
}
