package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ashlar-dev/storage"
	_ "github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/internal/test/reports"
	_ "github.com/ashlar-dev/storage/sqlite"
	"github.com/ashlar-dev/storage/telemetry"
)

// Stores without a server report what docs/metrics.md lists, and the backlog of a watch that does not read.
func TestGauges(t *testing.T) {
	t.Parallel()
	for store, url := range map[string]string{"memory": "mem://", "SQLite": "sqlite:" + t.TempDir() + "/store.db"} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			r := reports.New()
			b, err := storage.Open(r.Context(t.Context()), url)
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			reading, stopped := fixture.WatchChanges(t, b), fixture.WatchChanges(t, b)
			for i := range 3 {
				fixture.Write(t, b, fixture.Resource(fmt.Sprint(i), strings.Repeat("v", 1000)))
				fixture.Next(t, reading)
			}
			if n := r.Total(t, telemetry.Watches); n != 2 {
				t.Errorf("%v watches, expected 2", n)
			}
			if n := r.Total(t, telemetry.WatchBacklog); n < 3000 {
				t.Errorf("a backlog of %v bytes, expected 3,000 or more", n)
			}
			for range 3 {
				fixture.Next(t, stopped)
			}
			for _, w := range []storage.Watch{reading, stopped} {
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				if _, err := w.Next(ctx); err == nil {
					t.Error("a watch has another event")
				}
			}
			stopped.Close()
			if n := r.Total(t, telemetry.Watches); n != 1 {
				t.Errorf("%v watches, expected 1", n)
			}
			if missing := r.Missing(t, store); len(missing) > 0 {
				t.Errorf("no values of %v", missing)
			}
			if n := r.Total(t, telemetry.HistorySize); n != 3 {
				t.Errorf("%v changes, expected 3", n)
			}
			b.Close()
			if n := len(r.Values(t, telemetry.Watches)); n != 0 {
				t.Error("a closed store is still observed")
			}
		})
	}
}

// A store that is opened by a URL counts calls by operation and result, and ends a span for each.
func TestCalls(t *testing.T) {
	t.Parallel()
	r := reports.New()
	b, err := storage.Open(r.Context(t.Context()), "mem://"+t.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	written := fixture.Write(t, b, fixture.Resource("a", "v"))
	if _, err := b.WriteCAS(t.Context(), fixture.Resource("a", "again")); !errors.Is(err, storage.ErrCASFailure) && !errors.Is(err, storage.ErrWrongUid) {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := b.Read(t.Context(), storage.StrongConsistency, written.Id); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.DeleteCAS(t.Context(), written.Id, "another"); !errors.Is(err, storage.ErrCASFailure) {
		t.Fatal(err)
	}
	if err := b.DeleteCAS(t.Context(), nil, ""); !errors.Is(err, storage.ErrInvalid) {
		t.Fatal(err)
	}
	for _, want := range []struct {
		attributes []string
		calls      float64
	}{
		{[]string{"db.operation.name=write", "error.type="}, 1},
		{[]string{"db.operation.name=write"}, 2},
		{[]string{"db.operation.name=read", "error.type="}, 3},
		{[]string{"db.operation.name=delete", "error.type=conflict"}, 1},
		{[]string{"db.operation.name=delete"}, 1}, // not the call with an invalid argument
		{[]string{"db.system.name=memory", "db.namespace=" + t.Name()}, 6},
	} {
		if got := r.Total(t, telemetry.OperationDuration, want.attributes...); got != want.calls {
			t.Errorf("%v: %v calls, expected %v", want.attributes, got, want.calls)
		}
	}
	var spans []string
	for _, span := range r.Spans.Ended() {
		spans = append(spans, span.Name()+" "+span.Status().Code.String())
	}
	if got, want := strings.Join(spans, ", "), "write Unset, write Error, read Unset, read Unset, read Unset, delete Error"; got != want {
		t.Errorf("spans %q, expected %q", got, want)
	}
	if log := r.Log(); !strings.Contains(log, "level=DEBUG") || !strings.Contains(log, "error.type=conflict") || strings.Contains(log, "level=WARN") {
		t.Errorf("log: %s", log)
	}
}
