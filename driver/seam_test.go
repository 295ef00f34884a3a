package driver_test

import (
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
)

// notMoving is a driver that is no Mover.
type notMoving struct{ driver.Driver[uint64] }

func (notMoving) StoreID() driver.StoreID       { return driver.StoreID{} }
func (notMoving) Source() driver.Source[uint64] { return nil }
func (notMoving) Close() error                  { return nil }

// layer is around a backend, and does what a Mover does in its own way.
type layer struct {
	*driver.Backend[uint64]
	driver.Mover
}

// A backend has what its driver has, and no more; a layer that embeds it is found first.
func TestSeam(t *testing.T) {
	t.Parallel()
	moving := driver.New(&stub{}, driver.Options[uint64]{})
	t.Cleanup(func() { _ = moving.Close() }) // never fails
	other := driver.New(notMoving{}, driver.Options[uint64]{})
	t.Cleanup(func() { _ = other.Close() }) // never fails
	if _, ok := storage.As[driver.Mover](moving); !ok {
		t.Error("the backend of a Mover has none")
	}
	if _, ok := storage.As[driver.GuardedMover](moving); !ok {
		t.Error("the backend of a GuardedMover has none")
	}
	if _, ok := storage.As[driver.Loader](moving); ok {
		t.Error("the backend has a Loader that its driver is not")
	}
	if _, ok := storage.As[driver.BulkReader](moving); ok {
		t.Error("the backend has a BulkReader that its driver is not")
	}
	if m, ok := storage.As[driver.Mover](other); ok {
		t.Errorf("the backend has a Mover that its driver is not: %T", m)
	}
	own := &stub{}
	if m, _ := storage.As[driver.Mover](layer{moving, own}); m != (layer{moving, own}) {
		t.Errorf("a layer's own Mover is %T", m)
	}
	if _, ok := storage.As[driver.GuardedMover](layer{moving, own}); !ok {
		t.Error("what a layer leaves to the backend is not found")
	}
}
