package conformance

import (
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/resourcepb"
)

// moverCases test what a migration needs of a backend: a driver.Mover, and, if the backend has them, a driver.GuardedMover, a
// driver.BulkReader and a driver.Loader.
var moverCases = topic{"Mover", []testCase{
	{name: "Notes", needs: needMover | needAnother, run: moverNotes},
	{name: "NoteLimits", needs: needMover | needAnother, run: moverNoteLimits},
	{name: "NotesAndFenceAreHidden", needs: needMover | needAnother, run: moverHidden},
	{name: "FenceRefusesWrites", needs: needMover | needAnother, run: fenceRefuses},
	{name: "FenceOpens", needs: needMover | needAnother, run: fenceOpens},
	{name: "FenceUnderLoad", needs: needMover | needAnother, run: fenceUnderLoad},
	{name: "Epochs", needs: needGuards | needAnother, run: guardEpochs},
	{name: "Guards", needs: needGuards | needAnother, run: guardWrites},
	{name: "GuardedLoads", needs: needGuards | needLoader | needAnother, run: guardLoads},
	{name: "BulkReads", needs: needBulkReader | needAnother, run: bulkReads},
	{name: "LoadContent", needs: needLoader | needAnother, run: loadContent},
	{name: "LoadAllOrNothing", needs: needLoader | needAnother, run: loadAllOrNothing},
	{name: "LoadWatched", needs: needLoader | needAnother, run: loadWatched},
}}

// movable is a handle with its Mover.
type movable struct {
	storage.Backend
	driver.Mover
}

// movables returns the handle of the case and a second one on the same store.
func movables(s *suite) (one, other movable) {
	s.Helper()
	of := func(b storage.Backend) movable { return movable{b, extension[driver.Mover](s, b)} }
	return of(s.b), of(s.another())
}

// extension returns an optional part of a driver.
func extension[T any](s *suite, b storage.Backend) T {
	s.Helper()
	part, ok := storage.As[T](b)
	if !ok {
		s.Fatalf("%T has no %T", b, &part)
	}
	return part
}

// close closes the store for writing.
func (m movable) close(s *suite, target string) {
	s.Helper()
	s.succeeds("SetFence", m.SetFence(s.ctx, &target))
	target = "changed by the caller" // the driver must not keep the pointer
}

func must[T any](t testing.TB) func(v T, err error) T {
	t.Helper()
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// thingNamed returns a resource whose uid depends on its name only.
func thingNamed(name string) *resourcepb.Resource {
	res := newThing(name)
	res.Id.Uid, res.Generation, res.Data = "uid-"+name, "", nil
	return res
}

// listAll lists the whole store.
func listAll(s *suite, b storage.Backend) []*resourcepb.Resource {
	s.Helper()
	return must[[]*resourcepb.Resource](s)(b.List(s.ctx, strong, anything, anywhere, ""))
}
