//go:build integration

package etcd_test

import (
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/internal/test/reports"
)

// The store reports what docs/metrics.md lists.
func TestMetrics(t *testing.T) {
	t.Parallel()
	storeURL := env.Etcd(t).StoreURL(t)
	r := reports.New()
	b, err := storage.Open(r.Context(fixture.Context(t)), storeURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	fixture.WatchChanges(t, b)
	written := fixture.Write(t, b, fixture.Resource("a", "v"))
	if _, err := b.Read(fixture.Context(t), storage.StrongConsistency, written.Id); err != nil {
		t.Fatal(err)
	}
	if missing := r.Missing(t, "etcd"); len(missing) > 0 {
		t.Errorf("no values of %v", missing)
	}
}
