package replica

import (
	"testing"

	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// A local deletion succeeds although another program has deleted a later version. A follower whose View includes the deletion continues with the
// recreation of the key.
func TestFollowerAfterDeletionByOther(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	b := delayed{fixture.Open(t, "mem://"), make(chan struct{})}
	first := fixture.Write(t, b, fixture.Resource("a", "1"))
	r, err := Open(ctx, b, Options[string]{Decode: func(res *resourcepb.Resource) string { return res.GetVersion() }})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	later := fixture.Resource("a", "2")
	later.Version = first.GetVersion()
	fixture.Remove(t, b, fixture.Write(t, b, later))
	w := r.Begin([]key.Key{key.Of(first.GetId())})
	fixture.Remove(t, b, first)
	if unsure := w.End(nil, []*resourcepb.Resource{first}); len(unsure) > 0 {
		t.Errorf("the copy is unsure about %v", unsure)
	}
	view, f := r.BorrowAndFollow()
	defer f.Close()
	if row := view.Get(key.Of(first.GetId())); row != nil {
		t.Errorf("the View has version %s of the deleted resource", row.Version)
	}
	again := fixture.Write(t, b, fixture.Resource("a", "3"))
	close(b.release)
	changes, err := f.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if len(changes) != 1 || changes[0].Old != nil || changes[0].New == nil || changes[0].New.Version != again.GetVersion() {
		t.Errorf("the follower returned %v, expected the creation of version %s", changes, again.GetVersion())
	}
}
