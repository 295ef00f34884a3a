//go:build integration

package postgres_test

import (
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// TestLostAfterCompact cuts off a write on a connection that has rested while others wrote, and compacted all that they wrote: that the
// database has not carried it out can still be told, and it is sent again.
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
