//go:build integration

package dynamodb_test

import (
	"context"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/conformance/mover"
	"github.com/ashlar-dev/storage/internal/test/env"
)

func TestMover(t *testing.T) {
	t.Parallel()
	mover.Run(t, mover.Harness{
		Open: func(t *testing.T) (one, other storage.Backend) {
			url := env.DynamoDB(t).StoreURL(t, "poll=10ms", "idle-poll=200ms")
			handle := func() storage.Backend {
				b, err := storage.Open(context.Background(), url)
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
			return handle(), handle()
		},
		NoGuards:     "a condition on another item makes a write a transaction, at twice the price",
		NoBulkReader: "a query has no faster form",
		NoLoader:     "the database writes no faster in bulk under a condition",
	})
}
