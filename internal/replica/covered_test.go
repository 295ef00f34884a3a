package replica

import (
	"testing"

	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// A write that a list of everything has brought before it was acknowledged is shown, though the program's write before it still lies there:
// of that one it was not known whether the list has it.
func TestWriteThatAListBroughtIsShown(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	b, r := openQuiet(t)
	k := key.Of(fixture.ID("a"))
	w := r.Begin([]key.Key{k})
	first := fixture.Write(t, b, fixture.Resource("a", "1"))
	w.End([]*resourcepb.Resource{first}, nil)
	_, follower := r.BorrowAndFollow()
	defer follower.Close()

	w = r.Begin([]key.Key{k})
	second := fixture.Write(t, b, first)
	r.mu.Lock()
	r.adopt(map[key.Key]*Row[string]{k: r.makeRow(second)}, r.acknowledged[k].barrierNumber)
	r.mu.Unlock()
	if unsure := w.End([]*resourcepb.Resource{second}, nil); len(unsure) > 0 {
		t.Errorf("the copy is not sure of %v", unsure)
	}
	if row := r.View().Get(k); row == nil || row.Version != second.Version {
		t.Errorf("%s was acknowledged, a View shows %v", second.Version, row)
	}
	changes, err := follower.Next(ctx)
	if err != nil || len(changes) != 1 || changes[0].Old.Version != first.Version || changes[0].New.Version != second.Version {
		t.Errorf("the follower is told %+v, %v", changes, err)
	}
}
