package migrate

import (
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// TestAbortBeforeTheJournal aborts a migration whose tool was killed after it had created a closed target, and before it wrote the journal.
// That opens the target.
func TestAbortBeforeTheJournal(t *testing.T) {
	t.Parallel()
	from, to := fixture.Open(t, "mem://"), fixture.Open(t, "mem://")
	mover, ok := storage.As[driver.GuardedMover](to)
	if !ok {
		t.Fatal("the memory store is no GuardedMover")
	}
	ctx := limited(t)
	if _, err := mover.SetFenceAt(ctx, driver.NewStoreFence(TargetContext(ctx, "mem://")), ""); err != nil {
		t.Fatal(err)
	}
	if err := Abort(ctx, from, to); err != nil {
		t.Fatal(err)
	}
	write(t, to, small("a", "1"))
}
