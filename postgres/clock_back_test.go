//go:build integration

package postgres

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/resourcepb"
)

// TestClockStepsBackBeforeLateAttempt loses the answer of an attempt that the adapter then abandons, sets the server's clock back,
// and delivers the attempt again, as a pooler that has kept it may. It must do nothing, because its caller has its result.
func TestClockStepsBackBeforeLateAttempt(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	server := env.StartInterceptedPostgres(t)
	b := openHandle(t, ctx, server.StoreURL(t))
	k := key.Key{Group: "g", Kind: "Kind", Name: "one"}
	create, err := newWrite(k, &resourcepb.Resource{Id: k.ID("uid", "v1")})
	if err != nil {
		t.Fatal(err)
	}
	w := b.handle.writer
	lost := &attempt{lock: 4711, expires: time.Now().Add(-time.Second)}
	create.lostAttempts = []*attempt{lost}
	if err := w.settler.settle(ctx, []*mutation{create}, true); err != nil || !lost.isDone {
		t.Fatalf("settle returned %v, the attempt is done: %t, expected nil and true", err, lost.isDone)
	}
	server.SetClock(t, -time.Hour)
	conn, err := pgx.Connect(ctx, server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	if err := w.sender.apply(ctx, conn, lost, []*mutation{create}, false); !isLate(err) {
		t.Errorf("the abandoned attempt, delivered after the clock's step: %v, expected that the server rejects it as late", err)
	}
	if res, err := b.handle.Get(ctx, storage.StrongConsistency, k); res != nil || err != nil {
		t.Errorf("Get returned %v, %v, expected that the abandoned attempt has created nothing", res, err)
	}
}
