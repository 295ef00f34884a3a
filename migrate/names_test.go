package migrate

import (
	"errors"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// TestTwoTargetsOfOneName moves a store to two others concurrently; both tools use the same name for the target. One succeeds. The
// other one fails with the reason, and can neither complete nor open the source again.
func TestTwoTargetsOfOneName(t *testing.T) {
	t.Parallel()
	t.Run("CutOver", func(t *testing.T) { t.Parallel(); twoTargets(t, true) })
	t.Run("Follow", func(t *testing.T) { t.Parallel(); twoTargets(t, false) })
}

// twoTargets completes a migration while a second one follows the same source. The second one must fail, whether it cuts over or not.
func twoTargets(t *testing.T, cutOver bool) {
	from, to, other := fixture.Open(t, "mem://"), fixture.Open(t, "mem://"), fixture.Open(t, "mem://")
	fill(t, from, zoo(20))
	following, cutover, result := make(chan struct{}, 100), make(chan struct{}, 1), make(chan error, 1)
	go func() {
		_, err := Run(limited(t), from, other, quick(Options{Live: true, To: "the new one", Cutover: cutover, Progress: func(p Progress) {
			if p.Phase == Following {
				following <- struct{}{}
			}
		}}))
		result <- err
	}()
	select {
	case <-following:
	case err := <-result:
		t.Fatal(err)
	}
	if _, err := Run(limited(t), from, to, quick(Options{Live: true, To: "the new one", CutoverLag: time.Hour})); err != nil {
		t.Fatal(err)
	}
	closedFor := fenceOf(t, from)
	write(t, to, small("later", "1"))
	if cutOver {
		cutover <- struct{}{}
	}
	if err := <-result; !errors.Is(err, errElsewhere) {
		t.Errorf("the second migration: %v, expected %v", err, errElsewhere)
	}
	if s, err := ReadStatus(t.Context(), other); err != nil || s == nil || s.Phase == Complete {
		t.Errorf("the second migration is at %v, %v", s, err)
	}
	if _, err := Run(limited(t), from, other, quick(Options{Live: true, To: "the new one", CutoverLag: time.Hour})); !errors.Is(err, storage.ErrFenced) {
		t.Errorf("continuing the second: %v, expected ErrFenced", err)
	}
	if err := Abort(limited(t), from, other); !errors.Is(err, errElsewhere) {
		t.Errorf("aborting the second: %v, expected %v", err, errElsewhere)
	}
	if now := fenceOf(t, from); now != closedFor || now == "" {
		t.Errorf("the source is closed for %q, expected %q", now, closedFor)
	}
}
