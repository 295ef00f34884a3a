package reaper_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
)

// A child of a resource that was deleted long ago, or that never existed, is deleted, and with it its own children.
func TestOrphansAreDeleted(t *testing.T) {
	f := newForest(t)
	f.reap()
	gone := f.write("owner", nil, nil)
	f.delete(gone)
	f.until(stones, 0)
	f.write("late", gone, nil)
	f.until(nodes, 0)
	f.until(stones, 0)

	invented := proto.CloneOf(f.write("owner", nil, nil))
	invented.Uid = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
	other := proto.CloneOf(gone)
	other.Name = "other"
	f.write("grandchild", f.write("invented", invented, nil), nil)
	f.write("stolen", other, nil)
	f.until(nodes, 1)
	f.until(stones, 0)
}

// The tombstone of an absent owner gets another version with each child, so that a reaper that found no children before does not delete it. It
// replaces no tombstone of another owner with the same uid.
func TestOrphansKeepTombstone(t *testing.T) {
	f := newForest(t)
	gone := f.write("owner", nil, nil)
	child := f.write("child", gone, nil)
	f.delete(gone)
	other := proto.CloneOf(gone)
	other.Name = "other"
	f.write("orphan-1", other, nil)
	versions := func() map[string]string {
		all, err := f.backend.List(f.ctx, storage.StrongConsistency, stones, anywhere, "")
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]string{}
		for _, stone := range all {
			found[stone.GetId().GetName()] = stone.GetVersion()
		}
		return found
	}
	before := versions()
	f.write("orphan-2", other, nil)
	after := versions()
	changed := 0
	for name, version := range after {
		if before[name] != version {
			changed++
		}
	}
	if len(before) != 2 || len(after) != 2 || changed != 1 {
		t.Errorf("the tombstones were %v and are %v", before, after)
	}
	f.reap()
	f.until(nodes, 0)
	f.until(stones, 0)
	if _, err := f.backend.Read(f.ctx, storage.StrongConsistency, child); err == nil {
		t.Error("a child of the deleted owner remains")
	}
}
