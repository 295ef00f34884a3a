//go:build integration

package postgres

import (
	"slices"
	"testing"
	"time"

	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// TestBookmarkBesideAPendingWriter polls for a bookmark while two writers have drawn the last numbers. Nothing is visible above them, and nothing
// announces their ends. The polls continue by themselves until the bookmark is reached, with pauses that grow unless one of them ends.
func TestBookmarkBesideAPendingWriter(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	b := openHandle(t, ctx, server.StoreURL(t))
	createdResource(t, ctx, b, "first")
	r := &run{source: b.handle.source, in: &inbox{signal: make(chan struct{}, 1)}, publish: func([]*event, position) {}}
	if err := r.begin(ctx); err != nil {
		t.Fatal(err)
	}
	first := b.pending(t, ctx, server.Connect(t), mutationOf(t, driver.Write, orderResource("pending-first", "")))
	second := b.pending(t, ctx, server.Connect(t), mutationOf(t, driver.Write, orderResource("pending-second", "")))
	target, err := r.Newest(ctx)
	if err != nil {
		t.Fatal(err)
	}
	poll := func() time.Duration {
		t.Helper()
		again, err := r.poll(ctx)
		if err == nil {
			err = r.await(ctx, again, nil) // without a tick or a signal
		}
		if err != nil {
			t.Fatalf("no poll follows, before the bookmark is reached: %v", err)
		}
		return r.proofPause
	}
	var pauses []time.Duration
	for range 6 {
		pauses = append(pauses, poll())
	}
	if pauses[0] != minPollPause || !slices.IsSorted(pauses) || pauses[5] < 10*longPause || r.HasReached(r.at, target) {
		t.Errorf("pauses of %v, reached: %t; expected pauses that grow", pauses, r.HasReached(r.at, target))
	}
	if err := first.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if pause := poll(); pause != minPollPause {
		t.Errorf("after the first writer: a pause of %v, expected %v", pause, minPollPause)
	}
	if err := second.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if again, err := r.poll(ctx); err != nil || again != 0 || !r.next.pollAt.IsZero() || !r.HasReached(r.at, target) {
		t.Errorf("after both writers: %v, pause %v, next poll %v, reached: %t", err, again, r.next.pollAt, r.HasReached(r.at, target))
	}
}
