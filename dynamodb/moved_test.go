package dynamodb_test

import (
	"errors"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/test/dynamofake"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// A store that has moved names the other store to writers and new watches, through both handles, until it is opened again.
func TestMovedStore(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	b, other := handle(t, s), handle(t, s)
	res := fixture.Write(t, other, box("a", nil))
	if err := advanceUntil(t, s, startFence(t, b, "mem://there")); err != nil {
		t.Fatal(err)
	}
	m, _ := storage.As[driver.GuardedMover](b)
	state, err := m.Fence(t.Context())
	if err == nil {
		_, err = m.SetFenceAt(t.Context(), &driver.Fence{Target: "mem://there", Moved: true, Identity: "id", Cursor: "c"}, state.Epoch)
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, handle := range map[string]storage.Backend{"the tool's handle": b, "the other handle": other} {
		_, write := handle.WriteCAS(t.Context(), res)
		_, watch := handle.WatchList(t.Context(), boxType, tenancy, "")
		for call, err := range map[string]error{"a write": write, "a delete": handle.DeleteCAS(t.Context(), res.GetId(), res.GetVersion()), "a watch": watch} {
			move := (*storage.MovedError)(nil)
			if !errors.As(err, &move) || *move != (storage.MovedError{Target: "mem://there", Identity: "id", Cursor: "c"}) {
				t.Errorf("%s, %s: %v, expected a MovedError", name, call, err)
			}
		}
	}
	if err := m.SetFence(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	fixture.Write(t, other, res)
}
