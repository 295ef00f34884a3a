//go:build integration

package postgres_test

import (
	"context"
	cryptorand "crypto/rand"
	"errors"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

func read(t testing.TB, b storage.Backend, id *resourcepb.ID) *resourcepb.Resource {
	t.Helper()
	res, err := b.Read(fixture.Context(t), storage.StrongConsistency, id)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func endOfSnapshot(t testing.TB, w storage.Watch) {
	t.Helper()
	if event := fixture.Next(t, w); event.GetEndOfSnapshot() == nil {
		t.Fatalf("event %v, expected the end of the snapshot", event)
	}
}

func isInconsistent(err error) bool {
	return errors.Is(err, storage.ErrInconsistent) && errors.Is(err, context.DeadlineExceeded)
}

func isCASFailure(err error) bool { return errors.Is(err, storage.ErrCASFailure) }

// unique returns a name that was not used before.
func unique() string { return "-" + cryptorand.Text() }
