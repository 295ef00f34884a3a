//go:build integration

package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/faultproxy"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// slowSnapshot returns a watch that has returned the first resource of a snapshot of several pages. All pages but the first are
// still in the database, behind a proxy.
func slowSnapshot(t *testing.T) (proxy *faultproxy.Proxy, b storage.Backend, w storage.Watch, rest []*resourcepb.Resource) {
	t.Helper()
	server := env.Postgres(t)
	proxy = faultproxy.New(t, server.Addr)
	schema := server.Schema(t)
	direct := fixture.Open(t, server.StoreURLIn(t, schema))
	b = fixture.Open(t, server.At(t, proxy.Addr()).StoreURLIn(t, schema, "timeout=200ms"))
	for i := range 12 {
		rest = append(rest, fixture.Write(t, direct, fixture.Resource(fmt.Sprintf("heavy-%02d", i), strings.Repeat("x", 500<<10))))
	}
	w, err := b.WatchList(fixture.Context(t), fixture.AllTypes, fixture.AllTenancies, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	expect(t, "the first of the snapshot", w, rest[0])
	fixture.Remove(t, direct, rest[11])
	return proxy, b, w, rest[1:]
}

// TestOutageInASnapshot disconnects a watch in the middle of its snapshot. Waiting consumes nothing; when the database is back, the
// snapshot continues. The outage takes longer than one call may.
func TestOutageInASnapshot(t *testing.T) {
	t.Parallel()
	proxy, _, w, rest := slowSnapshot(t)
	proxy.Refuse()
	waited := 0
	for waited == 0 || waited < 8 && len(rest) > 0 {
		ctx, cancel := context.WithTimeout(fixture.Context(t), 100*time.Millisecond)
		ev, err := w.Next(ctx)
		cancel()
		switch {
		case err == nil && len(rest) > 0 && ev.GetUpsert().GetResource().GetVersion() == rest[0].GetVersion():
			rest = rest[1:]
		case errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, storage.ErrWatchClosed):
			waited++
		default:
			t.Fatalf("without the database: %v, %v", ev, err)
		}
	}
	if len(rest) == 0 {
		t.Fatal("all of the snapshot was held in memory")
	}
	proxy.Resume()
	for _, want := range rest {
		expect(t, "the rest of the snapshot", w, want)
	}
	endOfSnapshot(t, w)
	ev := fixture.Next(t, w)
	if got := ev.GetDelete().GetResource().GetVersion(); got != rest[len(rest)-1].GetVersion() {
		t.Errorf("after the snapshot: %v", ev)
	}
}

// TestCloseInASnapshot closes a watch, or its backend, while it waits for a page of its snapshot.
func TestCloseInASnapshot(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(storage.Backend, storage.Watch) error{
		"the watch":   func(_ storage.Backend, w storage.Watch) error { w.Close(); return nil },
		"the backend": func(b storage.Backend, _ storage.Watch) error { return b.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy, b, w, _ := slowSnapshot(t)
			proxy.Stall()
			defer proxy.Resume()
			failed := make(chan error)
			go func() {
				for {
					if _, err := w.Next(context.Background()); err != nil {
						failed <- err
						return
					}
				}
			}()
			if err := end(b, w); err != nil {
				t.Error(err)
			}
			select {
			case err := <-failed:
				if !errors.Is(err, storage.ErrWatchClosed) {
					t.Errorf("next: %v", err)
				}
			case <-fixture.Context(t).Done():
				t.Error("next still waits")
			}
		})
	}
}
