//go:build integration

package postgres_test

import (
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// TestLostAfterCompact cuts off a write on a connection that was idle while others wrote and compacted all of their changes. The
// adapter can still determine that the write was not applied, and sends it again.
func TestLostAfterCompact(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	proxy, through, direct := behindProxy(t)
	fixture.Write(t, through, fixture.Resource("first", "v"))
	stored := fixture.Resource("second", "v")
	for range 3 {
		stored = fixture.Write(t, direct, stored)
	}
	h, ok := storage.As[history.Historian](direct)
	if !ok {
		t.Fatal("the backend is no Historian")
	}
	_, newest, err := h.Revisions(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Compact(ctx, newest); err != nil {
		t.Fatal(err)
	}
	payload := "payload" + unique()
	trap := proxy.CutRequest([]byte(payload))
	fixture.Write(t, through, fixture.Resource("third", payload))
	sprung(t, trap)
}
