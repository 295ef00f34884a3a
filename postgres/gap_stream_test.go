//go:build integration

package postgres

import (
	"context"
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/resourcepb"
)

// pending begins a transaction that carries out mutations, and does not end it.
func (b *Backend) pending(t *testing.T, ctx context.Context, conn *pgx.Conn, ms ...*mutation) pgx.Tx {
	t.Helper()
	tx, err := conn.Begin(ctx)
	if err == nil {
		err = b.handle.sender.apply(ctx, conn, &attempt{lock: 1, expires: time.Now().Add(time.Hour)}, ms, true)
	}
	if err != nil {
		t.Fatal(err)
	}
	return tx
}

// mutationOf returns the mutation that writes or deletes a resource.
func mutationOf(t *testing.T, verb driver.Verb, res *resourcepb.Resource) *mutation {
	t.Helper()
	m, err := newMutation(&driver.Mutation{Verb: verb, Key: key.Of(res.Id), Uid: res.Id.Uid, Version: res.Version, Resource: res})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// besideGaps calls f beside a stream of writers of which one is pending below a visible change at any time. f starts after the first
// such writer. A pending writer commits only after the next one has drawn its number and a higher number is visible.
func besideGaps[T any](t *testing.T, ctx context.Context, server *env.PostgresServer, b *Backend, f func() (T, error)) (T, error) {
	t.Helper()
	conns := []*pgx.Conn{server.Connect(t), server.Connect(t)}
	stream := rand.Text()
	visible, err := b.WriteCAS(ctx, orderResource("visible-"+stream, ""))
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	var last pgx.Tx
	for n := 0; err == nil; n++ {
		next := b.pending(t, ctx, conns[n%2], mutationOf(t, driver.Write, orderResource(fmt.Sprint("pending-", stream, n), "")))
		if visible, err = b.WriteCAS(ctx, visible); err != nil {
			break
		}
		if n == 0 {
			go func() {
				value, err := f()
				done <- result{value, err}
			}()
		} else {
			err = last.Commit(ctx)
		}
		last = next
		select {
		case r := <-done:
			if err := last.Rollback(ctx); err != nil {
				t.Error(err)
			}
			return r.value, r.err
		default:
		}
	}
	t.Fatal(err)
	panic("unreachable")
}
