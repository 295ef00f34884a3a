package dynamodb_test

import (
	"errors"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/dynamodb"
	"github.com/ashlar-dev/storage/internal/test/dynamofake"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// TestNewStoreIsBornClosed opens a store as the target of a migration. The handle that creates it needs no wait: no write without the guard
// succeeds, through any handle, until the store is opened.
func TestNewStoreIsBornClosed(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	fence := driver.Fence{Target: "mem://source", Admits: "mover"}
	db, streams := s.Clients(t)
	opts := &dynamodb.Options{Table: dynamofake.Table, Prefix: "test", Timeout: fixture.Timeout}
	b, err := dynamodb.New(driver.WithNewStoreFence(t.Context(), fence), db, streams, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	other, err := dynamodb.New(driver.WithNewStoreFence(t.Context(), driver.Fence{Target: "of a later opening"}), db, streams, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Close() })
	m, _ := storage.As[driver.GuardedMover](b)
	state, err := m.Fence(t.Context())
	if err != nil || !state.Closed || state.Fence != fence || state.Epoch == "" {
		t.Fatalf("the fence is %+v, %v", state, err)
	}
	for _, handle := range []storage.Backend{b, other} {
		if _, err := handle.WriteCAS(t.Context(), box("early", nil)); !errors.Is(err, storage.ErrFenced) {
			t.Errorf("a write without the guard: %v, expected ErrFenced", err)
		}
	}
	revision, err := m.WriteNote(t.Context(), "mover", nil, "")
	if err != nil {
		t.Fatal(err)
	}
	guarded := driver.WithGuard(t.Context(), driver.Guard{Note: "mover", Revision: revision})
	for _, handle := range []storage.Backend{b, other} {
		res, err := handle.WriteCAS(guarded, box("copied", nil))
		if err == nil {
			err = handle.DeleteCAS(guarded, res.GetId(), res.GetVersion())
		}
		if err != nil {
			t.Errorf("a write with the guard: %v", err)
		}
	}
	if _, err := m.SetFenceAt(t.Context(), nil, state.Epoch); err != nil {
		t.Fatal(err)
	}
	fixture.Write(t, other, box("late", nil))
}
