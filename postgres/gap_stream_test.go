//go:build integration

package postgres

import (
	"context"
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage"
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
// such writer. A pending writer commits only after the next one has drawn its number and a higher number is visible. The pending
// writer n creates the resource "pending-…-n" with an owner, and deletes that of writer n - 2. The visible change creates "visible-…-n" with
// the owner, and deletes the previous one. So the state after a visible change has the resources pending n - 1, pending n and visible n.
func besideGaps[T any](t *testing.T, ctx context.Context, server *env.PostgresServer, b *Backend, owner string, f func() (T, error)) (T, error) {
	t.Helper()
	conns := []*pgx.Conn{server.Connect(t), server.Connect(t)}
	stream := rand.Text()
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	var last pgx.Tx
	var created [2]*resourcepb.Resource
	var visible []storage.Op
	for n := 0; ; n++ {
		res := orderResource(fmt.Sprintf("pending-%s-%d", stream, n), owner)
		ms := []*mutation{mutationOf(t, driver.Write, res)}
		if n >= 2 {
			ms = append(ms, mutationOf(t, driver.Delete, created[n%2]))
		}
		next := b.pending(t, ctx, conns[n%2], ms...)
		res.Version = versionText(ms[0].token)
		created[n%2] = res
		visible = append(visible, storage.Op{Write: orderResource(fmt.Sprintf("visible-%s-%d", stream, n), owner)})
		written, err := b.Commit(ctx, visible)
		if err != nil {
			t.Fatal(err)
		}
		shown := written[len(written)-1]
		visible = []storage.Op{{Delete: shown.Id, Version: shown.Version}}
		if n == 0 {
			go func() {
				value, err := f()
				done <- result{value, err}
			}()
		} else if err := last.Commit(ctx); err != nil {
			t.Fatal(err)
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
}
