package migrate

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// A tool is killed after it has opened the target, and before it has recorded that. A program uses the target, and an operator opens the source, for
// example to go back. Whatever the next tool does, it does not revert the program's writes.
func TestKilledAfterTargetWasOpened(t *testing.T) {
	t.Parallel()
	from, to := fixture.Open(t, "mem://"), fixture.Open(t, "mem://")
	write(t, from, small("a", "1"))
	tap, fences := newTap(), 0
	tap.at = func(_ int, before bool, what string) error {
		if what == "to fence" && !before {
			if fences++; fences == 2 { // closed, and opened
				tap.die()
			}
		}
		return nil
	}
	o := quick(Options{Live: true, CutoverLag: time.Hour})
	if _, err := Run(limited(t), from, &tapped{Backend: to, tap: tap, role: "to"}, o); err == nil {
		t.Fatal("the tool was not killed")
	}
	if fenceOf(t, to) != "" {
		t.Fatal("the target is closed")
	}
	write(t, to, small("a", "2"))
	write(t, to, small("b", "1"))
	if err := Unfence(limited(t), from); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		_, err := Run(limited(t), from, to, o)
		t.Logf("the next tool: %v", err)
	}
	if got := contents(t, to); got["a"] != "2" || got["b"] != "1" {
		t.Errorf("the writes of a program were reverted: the target has %v", got)
	}
}

// A copy that was stopped before it has opened the target can be continued by the same call, and by a live migration, which either completes or
// says that the copy must be finished first.
func TestLiveAfterStoppedCopy(t *testing.T) {
	t.Parallel()
	from, to := fixture.Open(t, "mem://"), fixture.Open(t, "mem://")
	write(t, from, small("a", "1"))
	ctx, stop := context.WithCancel(limited(t))
	defer stop()
	tap, fences := newTap(), 0
	tap.at = func(_ int, before bool, what string) error {
		if what == "to fence" && before {
			if fences++; fences == 2 {
				stop()
				return errDead
			}
		}
		return nil
	}
	if _, err := Run(ctx, from, &tapped{Backend: to, tap: tap, role: "to"}, quick(Options{})); err == nil {
		t.Fatal("the tool was not stopped")
	}
	var err error
	for range 3 {
		if _, err = Run(limited(t), from, to, quick(Options{Live: true, CutoverLag: time.Hour})); err == nil {
			break
		}
		t.Logf("a live migration: %v", err)
	}
	if err != nil {
		if _, again := Run(limited(t), from, to, quick(Options{})); again != nil || !errors.Is(err, storage.ErrInvalid) {
			t.Errorf("the same call as before: %v, after %v", again, err)
		}
	}
	if got := contents(t, to); got["a"] != "1" || fenceOf(t, to) != "" {
		t.Errorf("the target has %v, and is closed for %q", got, fenceOf(t, to))
	}
}

// A database that has lost its last seconds, as after a fail-over without synchronous replication, has an older journal of the same process. The
// process does not continue from the position in its memory, because the target lacks the changes before.
func TestJournalWasSetBack(t *testing.T) {
	t.Parallel()
	store := moverOf(t, fixture.Open(t, "mem://"))
	j := &journal{store: store}
	at := func(cursor string) error {
		return j.change(limited(t), func(s *state) { s.Format, s.Run, s.Cursor = stateFormat, "one", cursor })
	}
	if err := at("first"); err != nil {
		t.Fatal(err)
	}
	old, _, err := store.ReadNote(limited(t), migrationNote)
	if err != nil {
		t.Fatal(err)
	}
	if err := at("second"); err != nil {
		t.Fatal(err)
	}
	if _, err := store.WriteNote(limited(t), migrationNote, old, j.at()); err != nil { // restored
		t.Fatal(err)
	}
	if err := at("third"); err == nil {
		t.Error("the journal was overwritten with a later position")
	}
	if s, _, err := readState(limited(t), store); err != nil || s.Cursor != "first" {
		t.Errorf("the journal is %+v, %v", s, err)
	}
}
