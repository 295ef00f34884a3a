package dynamodb_test

import (
	"errors"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/test/dynamofake"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// wantWaits requires that a change does not end while a write is held between the checks of its transaction and its effect. The change makes
// such writes fail from its end on.
func wantWaits(t *testing.T, s *dynamofake.Server, held *dynamofake.Prepared, write func() error, change func() <-chan error) {
	t.Helper()
	t.Cleanup(held.Commit)
	written := inBackground(write)
	<-held.Ready()
	changed := change()
	for s.Conflicts() == 0 {
		select {
		case err := <-changed:
			t.Fatalf("the change ended with %v while a write was prepared", err)
		case <-time.After(5 * time.Millisecond):
			s.Advance(10 * time.Second)
		}
	}
	held.Commit()
	if err := <-written; err != nil {
		t.Fatalf("the prepared write: %v", err)
	}
	if err := advanceUntil(t, s, changed); err != nil {
		t.Fatalf("the change: %v", err)
	}
}

// A write of a tool is prepared, its guard holds, and another tool takes over. The takeover waits until the write is applied: applied later, it
// would undo the work of the other tool.
func TestTakeoverBesidePreparedWrite(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	first, second := handle(t, s), handle(t, s)
	revision, err := gateOf(second).WriteNote(t.Context(), "mover", []byte("first"), "")
	if err != nil {
		t.Fatal(err)
	}
	guarded := driver.WithGuard(t.Context(), driver.Guard{Note: "mover", Revision: revision})
	if _, err := first.WriteCAS(guarded, box("before", nil)); err != nil { // the note becomes a guard
		t.Fatal(err)
	}
	held := s.HoldTransaction('j')
	wantWaits(t, s, held, func() error {
		_, err := first.WriteCAS(guarded, box("a", nil))
		return err
	}, func() <-chan error {
		return inBackground(func() error {
			_, err := gateOf(second).WriteNote(t.Context(), "mover", []byte("second"), revision)
			return err
		})
	})
	if _, err := first.WriteCAS(guarded, box("b", nil)); !errors.Is(err, driver.ErrSuperseded) {
		t.Errorf("a write after the takeover: got %v, expected ErrSuperseded", err)
	}
}

// A write is prepared, its gate is open, and the store is closed. The closing waits until the write is applied.
func TestFenceBesidePreparedWrite(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	b, other := handle(t, s), handle(t, s)
	res := fixture.Write(t, other, box("a", nil))
	done := startFence(t, b, "mem://there")
	awaitAnnouncement(s)
	held := s.HoldTransaction('f')
	wantWaits(t, s, held, func() error {
		for { // the writes before the handle has read the announcement have no gate
			stored, err := other.WriteCAS(t.Context(), res)
			if err != nil {
				return err
			}
			res = stored
			select {
			case <-held.Ready():
				return nil
			default:
				s.Advance(10 * time.Second)
			}
		}
	}, func() <-chan error { return done })
	if _, err := other.WriteCAS(t.Context(), res); !errors.Is(err, storage.ErrFenced) {
		t.Errorf("a write to the closed store: got %v, expected ErrFenced", err)
	}
}

func inBackground(do func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	return done
}
