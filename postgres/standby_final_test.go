//go:build integration

package postgres

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/migrations"
	"github.com/ashlar-dev/storage/resourcepb"
)

// TestStandbyIsNotFinal reads on a standby how far history is final. It has no notes, and its sequence is ahead of the drawn
// numbers; a pooler may lead to a standby unnoticed.
func TestStandbyIsNotFinal(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	pair := env.StartPostgresPair(t)
	const schema = "store" // dropped with the servers
	primary := pair.Primary.Connect(t)
	if _, err := migrations.Up(ctx, primary, schema); err != nil {
		t.Fatal(err)
	}
	pair.CatchUp(t)
	sql := newStatements(schema)
	if _, _, err := scanFinal(primary.QueryRow(ctx, sql.final)); err != nil {
		t.Errorf("the primary: %v", err)
	}
	if last, final, err := scanFinal(pair.Standby.Connect(t).QueryRow(ctx, sql.final)); !errors.Is(err, errStandby) {
		t.Errorf("the standby reports %d numbers and %d as final: %v, expected an error", last, final, err)
	}
}

// TestStandbyThatLagsIsNoFork reads changes from a standby that lacks the last one, as behind a pooler just before a fail-over is
// complete. It must not be mistaken for a database that has lost the change, which would end all watches.
func TestStandbyThatLagsIsNoFork(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	pair := env.StartPostgresPair(t)
	b := openHandle(t, ctx, pair.Primary.StoreURLIn(t, "store")) // dropped with the servers
	pair.CatchUp(t)
	standby := pair.Standby.Connect(t)
	if _, err := standby.Exec(ctx, "select pg_wal_replay_pause()"); err != nil {
		t.Fatal(err)
	}
	written := &resourcepb.Resource{Id: key.Key{Group: "g", Kind: "Kind", Name: "name"}.ID("uid", "v1")}
	if _, err := b.WriteCAS(ctx, written); err != nil {
		t.Fatal(err)
	}
	at, err := b.handle.source.history.last(ctx, b.handle.database.main, math.MaxInt64)
	if err != nil || at.revision == 0 {
		t.Fatalf("the last change is %v, %v", at, err)
	}
	if _, err := b.handle.source.history.next(ctx, standby, &at, 10); !errors.Is(err, errStandby) {
		t.Errorf("the changes after one that the standby does not have: %v, expected an unknown outcome", err)
	}
}
