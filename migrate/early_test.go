package migrate

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// TestEarlyWritersAreRefused has a program write to the target at every step of a migration. It gets ErrFenced, or its write stays: none
// vanishes.
func TestEarlyWritersAreRefused(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds() {
		for _, live := range []bool{false, true} {
			t.Run(fmt.Sprintf("to %s, live %v", kind.name, live), func(t *testing.T) {
				t.Parallel()
				url := kind.url(t)
				from, to, program := fixture.Open(t, "mem://"), fixture.Open(t, url), fixture.Open(t, url)
				if _, guards := storage.As[driver.GuardedMover](to); !guards {
					return
				}
				fill(t, from, []*resourcepb.Resource{small("stays", "1"), small("changes", "1"), small("early", "1")})
				tap, accepted, refused, tries := newTap(), map[string]string{}, 0, 0
				note := func(err error, name, value string) {
					switch {
					case err == nil:
						accepted[name] = value
					case errors.Is(err, storage.ErrFenced):
						refused++
					case !errors.Is(err, storage.ErrCASFailure):
						t.Error(err)
					}
				}
				started := false
				var step sync.Mutex // the heartbeats are steps as well, in a goroutine of their own
				tap.at = func(_ int, _ bool, what string) error {
					step.Lock()
					defer step.Unlock()
					if started = started || what == "to write"; !started {
						return nil
					}
					tries++
					name := fmt.Sprint("own-", tries)
					_, err := program.WriteCAS(limited(t), small(name, "1"))
					note(err, name, "1")
					if res := fixture.Stored(t, program, small("stays", "").Id); res != nil {
						update := small("stays", fmt.Sprint("early-", tries))
						update.Version = res.Version
						_, err = program.WriteCAS(limited(t), update)
						note(err, "stays", fmt.Sprint("early-", tries))
					}
					if live && tries == 1 {
						write(t, from, small("changes", "2"))
					}
					return nil
				}
				o := quick(Options{Live: live, CutoverLag: time.Hour, Batch: 1, Parallel: 1})
				if !live {
					o.CutoverLag = 0
				}
				r, err := Run(limited(t), from, &tapped{Backend: to, tap: tap, role: "to"}, o)
				if err != nil || live && r.Phase != Complete {
					t.Fatalf("%+v, %v", r, err)
				}
				if refused == 0 {
					t.Error("no write was refused")
				}
				got := contents(t, to)
				for name, value := range accepted {
					if got[name] != value {
						t.Errorf("%s was written with %q, and vanished: the target has %q", name, value, got[name])
					}
				}
				_, err = program.WriteCAS(limited(t), small("late", "1"))
				if err != nil {
					t.Errorf("the target is not open at the end: %v", err)
				}
			})
		}
	}
}

// TestEarlyWriterBeforeTheFence has a program write to an empty target after the tool found it empty, and before the tool closed it. The
// migration fails, the resource stays, and the target is open.
func TestEarlyWriterBeforeTheFence(t *testing.T) {
	t.Parallel()
	from, to := fixture.Open(t, "mem://"), fixture.Open(t, "mem://")
	fill(t, from, []*resourcepb.Resource{small("a", "1")})
	tap := newTap()
	tap.at = func(_ int, before bool, what string) error {
		if what == "to fence" && before && contents(t, to)["own"] == "" {
			write(t, to, small("own", "1"))
		}
		return nil
	}
	r, err := Run(limited(t), from, &tapped{Backend: to, tap: tap, role: "to"}, quick(Options{Live: true, CutoverLag: time.Hour}))
	if !errors.Is(err, ErrNotEmpty) || r.HasJournal || r.Next != Nothing {
		t.Errorf("got %+v, %v, expected ErrNotEmpty", r, err)
	}
	write(t, to, small("own", "2"))
	if got := contents(t, to); len(got) != 1 || got["own"] != "2" {
		t.Errorf("the target has %v", got)
	}
}

// TestKilledBesideEarlyWriter kills the tool at each of its steps after it has found the target written to. Another tool finds this too, and
// leaves the target open.
func TestKilledBesideEarlyWriter(t *testing.T) {
	t.Parallel()
	for at, more := 0, true; more; at++ {
		from, to := fixture.Open(t, "mem://"), fixture.Open(t, "mem://")
		fill(t, from, []*resourcepb.Resource{small("a", "1")})
		tap := newTap()
		more = false
		tap.at = func(step int, before bool, what string) error {
			if what == "to fence" && before && contents(t, to)["own"] == "" {
				write(t, to, small("own", "1"))
			}
			if step == at && before {
				more = true
				tap.die()
			}
			return nil
		}
		o := quick(Options{Live: true, CutoverLag: time.Hour})
		if _, err := Run(limited(t), from, &tapped{Backend: to, tap: tap, role: "to"}, o); err == nil {
			t.Fatalf("step %d: the migration ended without an error", at)
		}
		if contents(t, to)["own"] == "" {
			continue // the tool has not closed the target yet
		}
		if _, err := Run(limited(t), from, to, o); !errors.Is(err, ErrNotEmpty) {
			t.Errorf("step %d: another tool: %v, expected ErrNotEmpty", at, err)
		}
		if _, err := to.WriteCAS(limited(t), small("late", "1")); err != nil {
			t.Errorf("step %d: the target is closed: %v", at, err)
		}
	}
}
