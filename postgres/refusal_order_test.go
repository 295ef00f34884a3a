//go:build integration

package postgres

import (
	"context"
	"errors"
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
