//go:build integration

package postgres

import (
	"context"
	"net/url"
	"testing"
)

// openHandle opens a store for a test that uses its internals.
func openHandle(t *testing.T, ctx context.Context, storeURL string) *Backend {
	t.Helper()
	u, err := url.Parse(storeURL)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Open(ctx, u)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}
