//go:build integration

package postgres

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/resourcepb"
)

// heldBack creates a store with a writer that has stopped before its commit, and a later write. It returns a run of the feed that
// began before, and a function that lets the writer commit.
func heldBack(t *testing.T, ctx context.Context) (r *run, b *Backend, shown *[]string, commit func()) {
	t.Helper()
	server := env.Postgres(t)
	b = openHandle(t, ctx, server.StoreURL(t))
	resource := func(name string) *resourcepb.Resource {
		return &resourcepb.Resource{Id: &resourcepb.ID{
			Uid: "uid", Name: name, Type: &resourcepb.Type{Group: "g", GroupVersion: "v1", Kind: "Kind"}, Tenancy: &resourcepb.Tenancy{},
		}}
	}
	if _, err := b.WriteCAS(ctx, resource("before")); err != nil {
		t.Fatal(err)
	}
	shown = new([]string)
	r = &run{source: b.handle.source, in: &inbox{signal: make(chan struct{}, 1)}, publish: func(events []*event, _ position) {
		for _, e := range events {
			*shown = append(*shown, e.Key.Name)
		}
	}}
	if err := r.begin(ctx); err != nil {
		t.Fatal(err)
	}
	stopped := resource("stopped")
	o, err := newWrite(key.Of(stopped.Id), stopped)
	if err != nil {
		t.Fatal(err)
	}
	conn := server.Connect(t)
	tx, err := conn.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.handle.sender.apply(ctx, conn, &attempt{lock: 1, expires: time.Now().Add(time.Hour)}, []*mutation{o}, false); err != nil {
		t.Fatal(err)
	}
	if _, err := b.WriteCAS(ctx, resource("behind")); err != nil {
		t.Fatal(err)
	}
	return r, b, shown, func() {
		t.Helper()
		if err := tx.Commit(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPausesWhileHeldBack polls while a commit stalls. The pauses between the polls grow, and end with the stall.
func TestPausesWhileHeldBack(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	r, _, shown, commit := heldBack(t, ctx)
	var pauses []time.Duration
	look := func() time.Duration {
		t.Helper()
		again, err := r.poll(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return again
	}
	for range 8 {
		pauses = append(pauses, look())
	}
	if pauses[0] != minPollPause || !slices.IsSorted(pauses) || pauses[7] < 10*longPause || len(*shown) > 0 {
		t.Errorf("pauses of %v, shown %v; expected pauses that grow, and nothing shown", pauses, *shown)
	}
	commit()
	if again := look(); again != 0 || !slices.Equal(*shown, []string{"stopped", "behind"}) {
		t.Errorf("after the commit: a pause of %v, shown %v", again, *shown)
	}
}

// TestLongPauseIsNotCutShort signals a run repeatedly while it pauses because a commit stalls or the database is unavailable. Each
// signal would otherwise cause a useless poll.
func TestLongPauseIsNotCutShort(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		in := &inbox{signal: make(chan struct{}, 1)}
		r := &run{source: &source{history: &history{}}, in: in}
		tick, done := make(chan time.Time), make(chan error, 1)
		go func() { done <- r.await(t.Context(), time.Hour, tick) }()
		for range 3 {
			in.add(nil, true)
			synctest.Wait()
			if len(done) > 0 {
				t.Fatalf("the pause was cut short: %v", <-done)
			}
		}
		tick <- time.Now()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestPublishedIsOfThisHistory reads a page of history while a commit stalls. A change that the feed has published is final
// nevertheless, if it is in the page. Another change with the same number is not.
func TestPublishedIsOfThisHistory(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	r, b, _, _ := heldBack(t, ctx)
	page := func() (names []string, err error) {
		events, _, _, err := r.source.page(ctx, r.at, 10)
		for _, e := range events {
			names = append(names, e.Key.Name)
		}
		return names, err
	}
	if names, err := page(); err != nil || len(names) > 0 {
		t.Errorf("after a stalled commit: %v, %v; expected nothing", names, err)
	}
	behind, err := b.handle.source.history.last(ctx, b.handle.database.main, math.MaxInt64)
	if err != nil {
		t.Fatal(err)
	}
	b.handle.source.feedPosition.Store(&behind)
	if names, err := page(); err != nil || !slices.Equal(names, []string{"behind"}) {
		t.Errorf("the published change: %v, %v; expected it", names, err)
	}
	other := behind
	other.tokenPrefix[0]++
	b.handle.source.feedPosition.Store(&other)
	if names, err := page(); !errors.Is(err, storage.ErrCompacted) {
		t.Errorf("the published change of another history: %v, %v; expected ErrCompacted", names, err)
	}
}

// newWrite converts a write like Apply.
func newWrite(k key.Key, res *resourcepb.Resource) (*mutation, error) {
	return newMutation(&driver.Mutation{Verb: driver.Write, Key: k, Uid: res.GetId().GetUid(), Version: res.GetVersion(), Resource: res})
}
