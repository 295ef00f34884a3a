package telemetry_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/ashlar-dev/storage"
	_ "github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/internal/test/reports"
	"github.com/ashlar-dev/storage/telemetry"
)

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
