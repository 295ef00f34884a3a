package replica

import (
	"testing"

	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// A relist delivers a local write before its acknowledgement, while an earlier local write of the key is unconfirmed. The later write is visible.
func TestWriteIncludedInRelist(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	b, r := openDelayed(t)
	k := key.Of(fixture.ID("a"))
	w := r.Begin([]key.Key{k})
	first := fixture.Write(t, b, fixture.Resource("a", "1"))
	w.End([]*resourcepb.Resource{first}, nil)
	_, follower := r.BorrowAndFollow()
	defer follower.Close()

	w = r.Begin([]key.Key{k})
	second := fixture.Write(t, b, first)
	r.mu.Lock()
	r.adopt(map[key.Key]*Row[string]{k: r.makeRow(second, nil)}, r.acknowledgedWrites[k].barrierNumber)
	r.mu.Unlock()
	if unsure := w.End([]*resourcepb.Resource{second}, nil); len(unsure) > 0 {
		t.Errorf("the copy is unsure about %v", unsure)
	}
	if row := r.View().Get(k); row == nil || row.Version != second.Version {
		t.Errorf("%s was acknowledged, a View has %v", second.Version, row)
	}
	changes, err := follower.Next(ctx)
	if err != nil || len(changes) != 1 || changes[0].Old.Version != first.Version || changes[0].New.Version != second.Version {
		t.Errorf("the follower returned %+v, %v", changes, err)
	}
}
