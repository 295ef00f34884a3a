package migrate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// The fence of a source without epochs is closed for one target while the tool for another target is about to change it.

// A request to close the source fails, and before its repetition the source is closed for another target. It stays closed for that target.
func TestClosingAgainForAnother(t *testing.T) {
	t.Parallel()
	from, to, other := fixture.Open(t, "mem://"), fixture.Open(t, "mem://"), fixture.Open(t, "mem://")
	fill(t, from, []*resourcepb.Resource{small("a", "1")})
	slow := newTap()
	var once sync.Once
	slow.at = func(_ int, before bool, what string) (err error) {
		if before && what == "from fence" {
			once.Do(func() {
				if _, err := Run(limited(t), from, other, quick(Options{Live: true, CutoverLag: time.Hour})); err != nil {
					t.Error(err)
				}
				err = fmt.Errorf("no answer: %w", storage.ErrInconsistent)
			})
		}
		return err
	}
	r, err := Run(limited(t), &tapped{Backend: from, tap: slow, role: "from", plain: true}, to, quick(Options{Live: true, CutoverLag: time.Hour}))
	if !errors.Is(err, errElsewhere) || r.Next != AbortFirst || r.SourceClosed {
		t.Errorf("got %+v and %v, expected %v", r, err, errElsewhere)
	}
	wantClosedFor(t, from, other)
}

// A process is suspended just before it closes the source. Meanwhile its migration is aborted, and a migration to another target is completed. When the process resumes, the source stays closed.
func TestGivenUpBeforeClosing(t *testing.T) {
	t.Parallel()
	from, to, other := fixture.Open(t, "mem://"), fixture.Open(t, "mem://"), fixture.Open(t, "mem://")
	fill(t, from, []*resourcepb.Resource{small("a", "1")})
	late := newTap()
	late.at = func(_ int, before bool, what string) error {
		if s, err := ReadStatus(context.Background(), to); before && what == "to note "+migrationNote && err == nil && s != nil && s.Phase == Cutover {
			late.freeze()
		}
		return nil
	}
	over := make(chan error, 1)
	go func() {
		_, err := Run(limited(t), &tapped{Backend: from, tap: late, role: "from", plain: true},
			&tapped{Backend: to, tap: late, role: "to", plain: true}, quick(Options{Live: true, CutoverLag: time.Hour}))
		over <- err
	}()
	select {
	case <-late.stopped:
	case err := <-over:
		t.Fatalf("it never reached that step: %v", err)
	}
	if err := Abort(limited(t), from, to); err != nil {
		t.Error(err)
	}
	if _, err := Run(limited(t), from, other, quick(Options{Live: true, CutoverLag: time.Hour})); err != nil {
		t.Error(err)
	}
	late.thaw()
	if err := <-over; !errors.Is(err, ErrSuperseded) {
		t.Errorf("got %v, expected %v", err, ErrSuperseded)
	}
	wantClosedFor(t, from, other)
}

// wantClosedFor checks that a store is closed for a target whose migration is complete.
func wantClosedFor(t *testing.T, from, to storage.Backend) {
	t.Helper()
	s, _, err := readState(limited(t), moverOf(t, to))
	if err != nil || s == nil || s.Phase != Complete {
		t.Fatalf("the migration is at %+v, %v", s, err)
	}
	if got := fenceOf(t, from); got != s.closedFor() {
		t.Errorf("the source is closed for %q, expected %q", got, s.closedFor())
	}
}
