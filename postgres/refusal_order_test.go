//go:build integration

package postgres

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// A transaction that deletes a resource has a lower number than an acknowledged creation, and has not committed. Whatever a later write or
// deletion says about the resource depends on the outcome of the transaction, so it waits like a strong read.
func TestRefusalsWaitForALowerNumber(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	b := openHandle(t, ctx, server.StoreURL(t))
	victim := createdResource(t, ctx, b, "victim")
	tx := b.pending(t, ctx, server.Connect(t), mutationOf(t, driver.Delete, victim), mutationOf(t, driver.Write, orderResource("made", "")))
	createdResource(t, ctx, b, "later")
	wrong := orderResource("victim", "")
	wrong.Id.Uid, wrong.Version = "another", versionText(make([]byte, versionSize))
	calls := map[string]func(ctx context.Context) error{
		"update": func(ctx context.Context) error { _, err := b.WriteCAS(ctx, wrong); return err },
		"transaction": func(ctx context.Context) error {
			_, err := b.Commit(ctx, []storage.Op{{Write: wrong}, {Write: orderResource("other", "")}})
			return err
		},
		"deletion": func(ctx context.Context) error {
			return b.DeleteCAS(ctx, &resourcepb.ID{Type: victim.Id.Type, Tenancy: victim.Id.Tenancy, Name: "victim", Uid: "another"}, wrong.Version)
		},
	}
	short, stop := context.WithTimeout(ctx, time.Second)
	defer stop()
	done := make(chan struct{})
	for name, call := range calls {
		go func() {
			if err := call(short); !errors.Is(err, storage.ErrInconsistent) && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s beside the pending transaction: %v", name, err)
			}
			done <- struct{}{}
		}()
	}
	for range calls {
		<-done
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := b.WriteCAS(ctx, wrong); !errors.Is(err, storage.ErrCASFailure) || errors.Is(err, storage.ErrWrongUid) {
		t.Errorf("an update of the deleted resource: %v", err)
	}
}

// The refusal of a transaction has the index of its first operation that fails. A pending transaction with a lower number than an acknowledged
// creation decides whether an earlier operation fails: by a creation, which no statement sees, or by an update, which locks the row.
func TestIndexOfARefusalWaitsForALowerNumber(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		creates bool
		others  []storage.Op // with a creation, another statement carries out the transaction
	}{"creation": {creates: true}, "update": {}, "update with a creation": {others: []storage.Op{{Write: orderResource("made", "")}}}} {
		for _, commits := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, commit=%t", name, commits), func(t *testing.T) {
				t.Parallel()
				ctx := fixture.Context(t)
				server := env.Postgres(t)
				b := openHandle(t, ctx, server.StoreURL(t))
				first, wrong := orderResource("first", ""), createdResource(t, ctx, b, "second")
				if !c.creates {
					first = createdResource(t, ctx, b, "first")
				}
				wrong.Version = versionText(make([]byte, versionSize))
				tx := b.pending(t, ctx, server.Connect(t), mutationOf(t, driver.Write, first))
				createdResource(t, ctx, b, "later")
				ops := append([]storage.Op{{Write: first}, {Write: wrong}}, c.others...)
				short, stop := context.WithTimeout(ctx, time.Second)
				defer stop()
				if _, err := b.Commit(short, ops); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("beside the pending transaction: %v, expected to wait until the deadline", err)
				}
				end, expected := tx.Rollback, 1
				if commits {
					end, expected = tx.Commit, 0
				}
				if err := end(ctx); err != nil {
					t.Fatal(err)
				}
				var op *storage.OpError
				if _, err := b.Commit(ctx, ops); !errors.As(err, &op) || op.Index != expected {
					t.Errorf("after the pending transaction: %v, expected the index %d", err, expected)
				}
			})
		}
	}
}
