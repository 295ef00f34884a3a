package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// A process that closed a source whose fence has no epoch, after another took the migration over, opens it again, unless others need it closed.
func TestClosedTooLate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		superseded, wanted bool
		wantedErr          error
		other              string // closes the source meanwhile
		closed             string
	}{
		"still its own":              {closed: "target"},
		"superseded":                 {superseded: true},
		"superseded, closed by need": {superseded: true, wanted: true, closed: "target"},
		"superseded, need unknown":   {superseded: true, wantedErr: errDead, closed: "target"},
		"closed for another":         {superseded: true, other: "another", closed: "another"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := fixture.Open(t, "mem://")
			asked := 0
			g := &gate{role: "source", store: moverOf(t, b), fence: driver.Fence{Target: "target"}}
			g.mine = func(context.Context) error {
				if asked++; asked > 1 && c.superseded {
					return ErrSuperseded
				}
				return nil
			}
			g.stillWanted = func(ctx context.Context) (bool, error) {
				if c.other != "" {
					if err := g.store.SetFence(ctx, &c.other); err != nil {
						t.Error(err)
					}
				}
				return c.wanted, c.wantedErr
			}
			epoch, err := g.close(limited(t))
			if errors.Is(err, ErrSuperseded) != c.superseded || !errors.Is(err, c.wantedErr) && c.wantedErr != nil || epoch != "" {
				t.Errorf("got %q, %v", epoch, err)
			}
			if got := fenceOf(t, b); got != c.closed || asked != 2 {
				t.Errorf("closed for %q, expected %q; confirmed %d times", got, c.closed, asked)
			}
		})
	}
}

// The source must stay closed in the phases from the cutover to the end.
func TestPhasesThatNeedAClosedSource(t *testing.T) {
	t.Parallel()
	from, to := fixture.Open(t, "mem://"), fixture.Open(t, "mem://")
	m := newMigration(from, to, nil)
	m.journal = &journal{store: m.target}
	g := m.newGate()
	if wanted, err := g.stillWanted(limited(t)); wanted || err != nil {
		t.Errorf("without a journal: %v, %v", wanted, err)
	}
	revision := ""
	for phase, want := range map[Phase]bool{Copying: false, Following: false, Cutover: true, Opening: true, Complete: true, phaseAborted: false, phaseComplete: false} {
		value, err := json.Marshal(state{Format: stateFormat, Phase: phase})
		if err == nil {
			revision, err = m.target.WriteNote(limited(t), migrationNote, value, revision)
		}
		if err != nil {
			t.Fatal(err)
		}
		if wanted, err := g.stillWanted(limited(t)); wanted != want || err != nil {
			t.Errorf("phase %q: %v, %v", phase, wanted, err)
		}
	}
}

// A process finds out that another has written the journal. A note of its own, whose answer was lost, is no reason to stop.
func TestJournalOfOneProcess(t *testing.T) {
	t.Parallel()
	store := moverOf(t, fixture.Open(t, "mem://"))
	j := &journal{store: store}
	if err := j.change(limited(t), func(s *state) { s.Format, s.Run = stateFormat, "one" }); err != nil {
		t.Fatal(err)
	}
	if err := j.confirm(limited(t)); err != nil {
		t.Fatal(err)
	}
	first := j.revision
	if err := j.confirm(limited(t)); err != nil {
		t.Fatal(err)
	}
	j.revision = first
	if err := j.confirm(limited(t)); err != nil {
		t.Errorf("after a lost answer: %v", err)
	}
	if s, revision, err := readState(limited(t), store); err != nil || revision != j.revision || s.Beat != 4 {
		t.Errorf("got %+v at %q, %v; expected the fourth heartbeat at %q", s, revision, err, j.revision)
	}
	for wait, want := range map[time.Duration]bool{-1: false, 0: false, 1: true} {
		if busy, err := alive(limited(t), store, first, wait); busy != want || err != nil {
			t.Errorf("a change was noticed within %v: %v, %v", wait, busy, err)
		}
	}
	if busy, err := alive(limited(t), store, j.revision, 1); busy || err != nil {
		t.Errorf("without a change: %v, %v", busy, err)
	}
	other := &journal{store: store, state: j.state, revision: j.revision}
	if err := other.change(limited(t), func(s *state) { s.Run = "two" }); err != nil {
		t.Fatal(err)
	}
	if err := j.confirm(limited(t)); !errors.Is(err, ErrSuperseded) {
		t.Errorf("after another took over: %v", err)
	}
	if err := store.DeleteNote(limited(t), migrationNote, other.revision); err != nil {
		t.Fatal(err)
	}
	if err := other.confirm(limited(t)); !errors.Is(err, ErrSuperseded) {
		t.Errorf("after the journal was deleted: %v", err)
	}
}

// Heartbeats are written as soon as the journal was quiet for their interval. The lease ends when its time is over.
func TestHeartbeats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		notes := &countedNotes{}
		m := &migration{journal: &journal{store: notes, lease: leaseTime}}
		if err := m.journal.confirm(t.Context()); err != nil {
			t.Fatal(err)
		}
		stop := m.keepAlive(t.Context(), nil)
		time.Sleep(3*journalEvery + 1)
		stop()
		if notes.writes != 4 {
			t.Errorf("%d notes in three intervals, expected one and three heartbeats", notes.writes)
		}
		time.Sleep(leaseTime - 2)
		if !m.journal.fresh() {
			t.Error("the lease has ended early")
		}
		time.Sleep(1) //nolint:staticcheck // the first moment after the lease
		if m.journal.fresh() {
			t.Error("the lease has not ended")
		}
	})
}

// Only the migration from the same source can be aborted, before the target is opened.
func TestAbortable(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		s    *state
		want error
	}{
		{nil, storage.ErrInvalid},
		{&state{Source: "s", Phase: Copying}, nil},
		{&state{Source: "s", Phase: Cutover}, nil},
		{&state{Source: "s", Phase: phaseAborted}, nil},
		{&state{Source: "s", Phase: Opening}, storage.ErrInvalid},
		{&state{Source: "s", Phase: phaseComplete}, storage.ErrInvalid},
		{&state{Source: "other", Phase: Copying}, ErrBusy},
		{&state{Source: "other", Phase: phaseAborted}, storage.ErrInvalid},
	} {
		if err := abortable(c.s, "s"); !errors.Is(err, c.want) {
			t.Errorf("%+v: got %v, expected %v", c.s, err, c.want)
		}
	}
}
