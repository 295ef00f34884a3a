package replica

import (
	"fmt"
	"testing"
	"time"

	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// A reader of a borrowed View that waits for the lock during a large commit still reads the old state: the commit gives the View its own trees.
func TestViewIsReadDuringLargeCommit(t *testing.T) {
	t.Parallel()
	b := fixture.Open(t, "mem://")
	stored := fixture.Write(t, b, fixture.Resource("a", "1"))
	r, err := Open(t.Context(), b, Options[string]{Decode: func(res *resourcepb.Resource) string { return res.GetVersion() }})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	view := r.Borrow()
	defer view.Return()
	k := key.Of(stored.GetId())

	r.mu.Lock()
	got := make(chan *Row[string])
	go func() { got <- view.Get(k) }()
	<-time.After(50 * time.Millisecond) // the reader waits for the lock; if it has not started yet, it finds the trees
	for i := range 2 * maxChangedKeys {
		other := key.Of(fixture.ID(fmt.Sprint("other", i)))
		r.set(other, &Row[string]{Key: other, Version: "1"})
	}
	r.set(k, &Row[string]{Key: k, Version: "later"})
	r.mu.Unlock()
	if row := <-got; row.Version != stored.GetVersion() {
		t.Errorf("the View has version %s, expected %s", row.Version, stored.GetVersion())
	}
}
