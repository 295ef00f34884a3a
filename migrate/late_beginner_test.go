package migrate

import (
	"fmt"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// wakesLate starts a migration, suspends its process before its first note in the target, lets another process complete the
// migration and a program use the target, and checks that the first process changes nothing when it resumes.
func wakesLate(t *testing.T, kind storeKind, note string, options Options) {
	t.Helper()
	from, to := fixture.Open(t, kind.url(t)), fixture.Open(t, kind.url(t))
	fill(t, from, []*resourcepb.Resource{small("stays", "1"), small("changes", "1"), small("goes", "1")})
	late := newTap()
	late.at = func(_ int, before bool, what string) error {
		if before && what == "to note "+note {
			late.freeze()
		}
		return nil
	}
	over := make(chan error, 1)
	go func() {
		_, err := Run(limited(t), &tapped{Backend: from, tap: late, role: "from"}, &tapped{Backend: to, tap: late, role: "to"}, quick(options))
		over <- err
	}()
	select {
	case <-late.stopped:
	case err := <-over:
		t.Fatalf("it never reached that step: %v", err)
	}
	if _, err := Run(limited(t), from, to, quick(options)); err != nil {
		t.Error(err)
	}
	write(t, to, small("changes", "2"))
	write(t, to, small("new", "1"))
	fixture.Remove(t, to, fixture.Stored(t, to, small("goes", "").Id))
	late.thaw()
	if err := <-over; err == nil {
		t.Error("the resumed process has carried out the migration as well")
	}
	want := map[string]string{"stays": "1", "changes": "2", "new": "1"}
	if got := contents(t, to); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the target has %v, expected %v", got, want)
	}
}

// A process is suspended while it takes the guard of the target's writes. When it resumes, another process has taken and released
// the guard.
func TestFrozenBeforeTheGuard(t *testing.T) {
	t.Parallel()
	for _, kind := range local {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			wakesLate(t, kind, guardNote, Options{Live: true, CutoverLag: time.Hour})
		})
	}
}

// A process is suspended after it has found the target empty, and resumes when another process has copied to it and exited.
func TestFrozenBeforeItsFirstNote(t *testing.T) {
	t.Parallel()
	for _, kind := range local {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			wakesLate(t, kind, migrationNote, Options{})
		})
	}
}

// A complete copy leaves nothing to continue or abort.
func TestNothingIsLeftOfACopy(t *testing.T) {
	t.Parallel()
	from, to, third := fixture.Open(t, "mem://"), fixture.Open(t, "mem://"), fixture.Open(t, "mem://")
	fill(t, from, []*resourcepb.Resource{small("a", "1")})
	fill(t, third, []*resourcepb.Resource{small("b", "1")})
	r, err := Run(limited(t), from, to, quick(Options{}))
	if err != nil || r.HasJournal || r.Next != Nothing || r.Phase != Copying {
		t.Errorf("got %+v, %v", r, err)
	}
	if s, err := ReadStatus(limited(t), to); s != nil || err != nil {
		t.Errorf("the target's journal has %+v, %v", s, err)
	}
	if err := Abort(limited(t), from, to); err == nil {
		t.Error("a complete migration was aborted")
	}
	for _, source := range []storage.Backend{third, from} {
		if r, err := Run(limited(t), source, to, quick(Options{Into: Mirror})); err != nil || r.IsResumed {
			t.Errorf("another copy: %+v, %v", r, err)
		}
	}
}
