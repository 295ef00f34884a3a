package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// begun returns two stores with a live migration that was interrupted while it followed.
func begun(t *testing.T, into Into) (from, to storage.Backend) {
	t.Helper()
	from, to = fixture.Open(t, "mem://"), fixture.Open(t, "mem://")
	fill(t, from, []*resourcepb.Resource{small("a", "1")})
	ctx, stop := context.WithCancelCause(limited(t))
	stopped := errors.New("stopped by the operator")
	r, err := Run(ctx, from, to, quick(Options{Live: true, Into: into, Progress: func(p Progress) {
		if p.Phase == Following {
			stop(stopped)
		}
	}}))
	if !errors.Is(err, stopped) || r.SourceClosed || r.Next != Retry {
		t.Fatalf("got %+v, %v", r, err)
	}
	return from, to
}

// A merge may become an overwrite, and nothing else becomes one. The source's capabilities are compared with how it was begun.
func TestContinuedInto(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ begun, into, want Into }{
		{Merge, Merge, Merge}, {Merge, Overwrite, Overwrite}, {Merge, Mirror, Merge}, {Overwrite, Merge, Overwrite}, {Empty, Mirror, Empty},
	} {
		from, to := begun(t, c.begun)
		r, err := Run(limited(t), from, to, quick(Options{Live: true, Into: c.into, CutoverLag: time.Hour}))
		if err != nil || r.Phase != Complete || !r.IsResumed || r.SourceClosed {
			t.Errorf("%+v: %+v, %v", c, r, err)
		}
		if s, _, err := readState(limited(t), moverOf(t, to)); err != nil || s.Into != c.want {
			t.Errorf("%+v: the journal has %+v, %v", c, s, err)
		}
	}
	from, to := begun(t, Merge)
	plain := &tapped{Backend: from, tap: newTap(), role: "from", plain: true}
	if r, err := Run(limited(t), plain, to, quick(Options{Live: true, Into: Mirror, CutoverLag: time.Hour})); !errors.Is(err, ErrUnsupported) || r.Next != AbortFirst {
		t.Errorf("a merge that continues without bookmarks: %+v, %v", r, err)
	}
}

// The journal of a copy has the phases of its target. The total is counted if required, also without a journal.
func TestPhasesOfACopy(t *testing.T) {
	t.Parallel()
	from := fixture.Open(t, "mem://")
	fill(t, from, []*resourcepb.Resource{small("a", "1"), small("b", "1"), small("c", "1")})
	for name, want := range map[string][]Phase{
		"guarded":           {Preparing, Copying, Opening, phaseComplete},
		"plain":             {Copying, phaseComplete},
		"without a journal": nil,
	} {
		to := fixture.Open(t, "mem://")
		var phases []Phase
		d := &disturbed{tapped: &tapped{Backend: to, tap: newTap(), role: "to", plain: name == "plain"}}
		d.write = func(note string, value []byte) {
			var s state
			if note != migrationNote {
				return
			}
			if err := json.Unmarshal(value, &s); err != nil {
				t.Error(err)
			}
			if len(phases) == 0 || phases[len(phases)-1] != s.Phase {
				phases = append(phases, s.Phase)
			}
		}
		target := storage.Backend(d)
		if name == "without a journal" {
			target = struct{ storage.Backend }{to}
		}
		var last Progress
		r, err := Run(limited(t), from, target, quick(Options{Count: true, Progress: func(p Progress) { last = p }}))
		if err != nil || r.Work.Creations != 3 || last.Total != 3 || last.Count != 3 || !slices.Equal(phases, want) {
			t.Errorf("%s: %+v, %v; phases %v, %d of %d", name, r, err, phases, last.Count, last.Total)
		}
	}
}

// If the target cannot be opened at the end, the migration is not complete, and continues.
func TestTargetCannotBeOpened(t *testing.T) {
	t.Parallel()
	from, to := fixture.Open(t, "mem://"), fixture.Open(t, "mem://")
	res := small("a", "1")
	res.Ttl = durationpb.New(time.Hour)
	fill(t, from, []*resourcepb.Resource{res})
	tap := newTap()
	fences, writes := 0, 0
	tap.at = func(_ int, before bool, what string) error {
		switch {
		case !before:
		case what == "to fence":
			if fences++; fences == 2 {
				return errDead
			}
		case what == "to write", what == "to commit", what == "to load":
			writes++
		}
		return nil
	}
	o := quick(Options{Live: true, CutoverLag: time.Hour})
	target := &tapped{Backend: to, tap: tap, role: "to"}
	if r, err := Run(limited(t), from, target, o); !errors.Is(err, errDead) || r.Phase != Opening || !r.SourceClosed || r.Next != Retry {
		t.Errorf("got %+v, %v", r, err)
	}
	// The watch has proven that the only write was copied.
	if writes != 1 {
		t.Errorf("%d writes of one resource with a time to live", writes)
	}
	if r, err := Run(limited(t), from, target, o); err != nil || r.Phase != Complete {
		t.Errorf("continued: %+v, %v", r, err)
	}
}

// The cursor at the end of a migration is a position in the target.
func TestEndCursor(t *testing.T) {
	t.Parallel()
	to := fixture.Open(t, "mem://")
	write(t, to, small("a", "1"))
	m := newMigration(nil, to, nil)
	cursor, err := m.endCursor(limited(t))
	if err != nil || cursor == "" {
		t.Fatalf("%q, %v", cursor, err)
	}
	write(t, to, small("b", "1"))
	resumer, _ := storage.As[storage.Resumer](to)
	w, err := resumer.WatchFrom(limited(t), everything, anyTenancy(), "", cursor)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if ev := fixture.Next(t, w); ev.GetUpsert().GetResource().GetId().GetName() != "b" {
		t.Errorf("got %v after the cursor", ev)
	}
}

// A migration whose target was opened by another program notices it.
func TestTargetIsClosed(t *testing.T) {
	t.Parallel()
	to := fixture.Open(t, "mem://")
	m := newMigration(nil, to, nil)
	m.journal = &journal{store: m.target, targetGuards: true}
	m.targetGate = m.newTargetGate()
	var err error
	if m.targetEpoch, err = m.targetGate.close(limited(t)); err != nil {
		t.Fatal(err)
	}
	if err := m.targetIsClosed(limited(t)); err != nil {
		t.Errorf("got %v for a closed target", err)
	}
	if err := Unfence(limited(t), to); err != nil {
		t.Fatal(err)
	}
	if err := m.targetIsClosed(limited(t)); !errors.Is(err, errTargetOpened) {
		t.Errorf("got %v for an open target", err)
	}
}
