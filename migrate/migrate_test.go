package migrate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// quick returns options for tests without other processes on the same migration.
func quick(o Options) *Options {
	o.takeover = -1
	o.From, o.To = "mem://from", "mem://to"
	return &o
}

func TestCopyIsComplete(t *testing.T) {
	t.Parallel()
	for _, batch := range []int{0, 1, 7} {
		t.Run(fmt.Sprint("batch=", batch), func(t *testing.T) {
			t.Parallel()
			from, to := fixture.Open(t, "mem://"), fixture.Open(t, "mem://")
			all := zoo(1200)
			fill(t, from, all)
			r, err := Run(limited(t), from, to, quick(Options{Batch: batch, PageSize: 50, Count: true}))
			if err != nil {
				t.Fatal(err)
			}
			if r.Work.Creations != int64(len(all)) || r.Report.Source != len(all) {
				t.Errorf("created %d and compared %d resources, expected %d of each", r.Work.Creations, r.Report.Source, len(all))
			}
			wantEqual(t, from, to)
			for _, owner := range all[:50] {
				want, err := from.OwnerReferences(limited(t), owner.Id)
				if err != nil {
					t.Fatal(err)
				}
				got, err := to.OwnerReferences(limited(t), owner.Id)
				if err != nil || len(got) != len(want) {
					t.Fatalf("%d references, expected %d, %v", len(got), len(want), err)
				}
				for i := range got {
					if !proto.Equal(got[i], want[i]) {
						t.Errorf("reference %d differs", i)
					}
				}
			}
		})
	}
}

func TestTargetWithContents(t *testing.T) {
	t.Parallel()
	// The two stores have a resource of the same name with different uids.
	other := small("rival", "target's")
	other.Id.Uid = "another"
	setUp := func(t *testing.T, conflict bool) (from, to storage.Backend) {
		from, to = fixture.Open(t, "mem://"), fixture.Open(t, "mem://")
		fill(t, from, []*resourcepb.Resource{small("new", "1"), small("same", "1")})
		fill(t, to, []*resourcepb.Resource{small("own", "1"), small("same", "1")})
		if conflict {
			fill(t, from, []*resourcepb.Resource{small("rival", "source's"), small("changed", "source's")})
			fill(t, to, []*resourcepb.Resource{other, small("changed", "target's")})
		}
		return from, to
	}
	for _, c := range []struct {
		name     string
		into     Into
		conflict bool
		err      error
		want     string
	}{
		{"empty", Empty, false, ErrNotEmpty, "own=1 same=1"},
		{"merge", Merge, false, nil, "new=1 own=1 same=1"},
		{"merge with conflicts", Merge, true, ErrConflict, "changed=target's own=1 rival=target's same=1"},
		{"overwrite", Overwrite, true, nil, "changed=source's new=1 own=1 rival=source's same=1"},
		{"mirror", Mirror, true, nil, "changed=source's new=1 rival=source's same=1"},
	} {
		for _, live := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, live %v", c.name, live), func(t *testing.T) {
				t.Parallel()
				from, to := setUp(t, c.conflict)
				o := quick(Options{Into: c.into, Live: live, CutoverLag: time.Hour})
				if _, err := Run(limited(t), from, to, o); !errors.Is(err, c.err) {
					t.Fatalf("got %v, expected %v", err, c.err)
				}
				got := contents(t, to)
				var text []string
				for _, name := range []string{"changed", "new", "own", "rival", "same"} {
					if v, there := got[name]; there {
						text = append(text, name+"="+v)
					}
				}
				if s := strings.Join(text, " "); s != c.want {
					t.Errorf("the target has %s, expected %s", s, c.want)
				}
				if errors.Is(c.err, ErrConflict) {
					// With Overwrite it continues.
					o.Into = Overwrite
					if _, err := Run(limited(t), from, to, o); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
}

func TestLiveUnderLoad(t *testing.T) {
	t.Parallel()
	for _, into := range []Into{Empty, Merge, Overwrite, Mirror} {
		t.Run(fmt.Sprint("into=", int(into)), func(t *testing.T) {
			t.Parallel()
			from, to := fixture.Open(t, "mem://"), fixture.Open(t, "mem://")
			fill(t, from, zoo(300))
			if into == Merge || into == Overwrite {
				fill(t, to, []*resourcepb.Resource{small("own", "1")})
			}
			load := startWriters(t, 4, func() storage.Backend { return from })
			load.awaitWrites(t, 20)
			cutover := make(chan struct{}, 1)
			following := make(chan struct{}, 100)
			o := quick(Options{Live: true, Into: into, Cutover: cutover, PageSize: 20, Progress: func(p Progress) {
				if p.Phase == Following {
					following <- struct{}{}
				}
			}})
			over := make(chan error, 1)
			go func() {
				r, err := Run(limited(t), from, to, o)
				if err == nil && r.Phase != Complete {
					err = fmt.Errorf("it ended in phase %s", r.Phase)
				}
				over <- err
			}()
			<-following
			load.awaitWrites(t, 200)
			cutover <- struct{}{}
			if err := <-over; err != nil {
				t.Fatal(err)
			}
			load.check(t, to)
			if own := contents(t, to)["own"]; into != Empty && into != Mirror && own != "1" {
				t.Error("other contents of the target were deleted")
			}
			_, err := from.WriteCAS(limited(t), small("late", ""))
			if !errors.Is(err, storage.ErrFenced) || !strings.Contains(err.Error(), "mem://to") {
				t.Errorf("a write after the cutover: got %v, expected ErrFenced naming the target", err)
			}
			again, err := Run(limited(t), from, to, o)
			if err != nil || !again.WasComplete || again.Phase != Complete {
				t.Errorf("the same call after the end: %+v, %v", again, err)
			}
		})
	}
}

// TestStoppedAnywhere stops a live migration repeatedly, each time at some moment of another phase, and continues it.
func TestStoppedAnywhere(t *testing.T) {
	t.Parallel()
	from, to := fixture.Open(t, "mem://"), fixture.Open(t, "mem://")
	fill(t, from, zoo(500))
	load := startWriters(t, 4, func() storage.Backend { return from })
	load.awaitWrites(t, 20)
	stopAt := []Phase{Copying, Copying, Following, Copying, Following, Following, Cutover, Cutover, Cutover, ""}
	met := make(map[Phase]int)
	for i, phase := range stopAt {
		ctx, stop := context.WithCancel(limited(t))
		var once sync.Once
		o := quick(Options{Live: true, PageSize: 10, Parallel: 4, Batch: 3, Progress: func(p Progress) {
			if phase == "" || phase == Cutover && p.Phase != Cutover || phase == Following && p.Phase == Copying {
				return
			}
			// Stop after some writes, at a moment unrelated to the migration's progress.
			once.Do(func() { go func() { load.awaitWritesOrEnd(i*10 + 1); stop() }() })
		}})
		if phase == Cutover || phase == "" {
			o.CutoverLag = time.Hour
		}
		r, err := Run(ctx, from, to, o)
		stop()
		met[r.Phase]++
		if err == nil {
			break
		}
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("run %d: %v", i, err)
		}
	}
	t.Logf("stopped and ended in %v", met)
	if met[Complete] != 1 {
		t.Fatal("the migration is not complete after all runs")
	}
	load.check(t, to)
	wantEqual(t, from, to)
}

func TestResumeAfterHistoryWasDiscarded(t *testing.T) {
	t.Parallel()
	from, to := fixture.Open(t, "mem://?history=10"), fixture.Open(t, "mem://")
	fill(t, from, zoo(50))
	gone := small("gone", "1")
	fill(t, from, []*resourcepb.Resource{gone})
	var warnings []string
	ctx, stop := context.WithCancel(limited(t))
	o := quick(Options{Live: true, Progress: func(p Progress) {
		if p.Warning != nil {
			warnings = append(warnings, p.Warning.Error())
		}
		if p.Phase == Following {
			stop()
		}
	}})
	if _, err := Run(ctx, from, to, o); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	// While no tool follows, the source changes more often than its history retains.
	gone, err := from.Read(limited(t), storage.StrongConsistency, gone.Id)
	if err != nil {
		t.Fatal(err)
	}
	fixture.Remove(t, from, gone)
	for i := range 50 {
		write(t, from, small("new", fmt.Sprint(i)))
	}
	o.CutoverLag = time.Hour
	r, err := Run(limited(t), from, to, o)
	if err != nil {
		t.Fatal(err)
	}
	if !r.IsResumed || r.Work.Creations != 1 || r.Work.Deletions != 1 {
		t.Errorf("resumed %v, did %+v: expected one resource created and one deleted", r.IsResumed, r.Work)
	}
	if text := strings.Join(warnings, "\n"); !strings.Contains(text, "history was deleted") {
		t.Errorf("the warnings do not contain the reason: %q", text)
	}
	wantEqual(t, from, to)
}

func TestRefusedMigrations(t *testing.T) {
	t.Parallel()
	t.Run("the same store", func(t *testing.T) {
		t.Parallel()
		name := "mem://" + strings.ReplaceAll(t.Name(), "/", "-")
		if _, err := Run(limited(t), fixture.Open(t, name), fixture.Open(t, name), quick(Options{})); !errors.Is(err, storage.ErrInvalid) {
			t.Errorf("got %v, expected ErrInvalid", err)
		}
	})
	t.Run("another migration's target", func(t *testing.T) {
		t.Parallel()
		one, two, to := fixture.Open(t, "mem://"), fixture.Open(t, "mem://"), fixture.Open(t, "mem://")
		ctx, stop := context.WithCancel(limited(t))
		o := quick(Options{Live: true, Progress: func(p Progress) {
			if p.Phase == Following {
				stop()
			}
		}})
		if _, err := Run(ctx, one, to, o); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if _, err := Run(limited(t), two, to, quick(Options{Into: Mirror})); !errors.Is(err, ErrBusy) {
			t.Errorf("got %v, expected ErrBusy", err)
		}
		if err := Abort(limited(t), one, to); err != nil {
			t.Fatal(err)
		}
		if _, err := Run(limited(t), two, to, quick(Options{Into: Mirror})); err != nil {
			t.Error(err)
		}
	})
	t.Run("a source that has moved", func(t *testing.T) {
		t.Parallel()
		from, to := fixture.Open(t, "mem://"), fixture.Open(t, "mem://")
		fence(t, from, "mem://elsewhere")
		_, err := Run(limited(t), from, to, quick(Options{Live: true}))
		if !errors.Is(err, storage.ErrFenced) || !strings.Contains(err.Error(), "mem://elsewhere") {
			t.Errorf("got %v, expected ErrFenced with the target", err)
		}
		if _, err := Run(limited(t), from, to, quick(Options{})); err != nil {
			t.Errorf("copying from it once: %v", err)
		}
	})
	t.Run("a target that has moved", func(t *testing.T) {
		t.Parallel()
		from, to := fixture.Open(t, "mem://"), fixture.Open(t, "mem://")
		fence(t, to, "mem://elsewhere")
		if _, err := Run(limited(t), from, to, quick(Options{})); !errors.Is(err, storage.ErrFenced) {
			t.Errorf("got %v, expected ErrFenced", err)
		}
	})
	t.Run("a store without journal", func(t *testing.T) {
		t.Parallel()
		from, to := fixture.Open(t, "mem://"), plain{fixture.Open(t, "mem://")}
		fill(t, from, zoo(20))
		if _, err := Run(limited(t), from, to, quick(Options{Live: true})); !errors.Is(err, ErrUnsupported) {
			t.Errorf("live: got %v, expected ErrUnsupported", err)
		}
		if _, err := Run(limited(t), from, to, quick(Options{})); err != nil {
			t.Errorf("once: %v", err)
		}
		if _, err := Run(limited(t), to, fixture.Open(t, "mem://"), quick(Options{})); err != nil {
			t.Errorf("once, from a store without pages: %v", err)
		}
	})
}

// plain is a backend without capabilities.
type plain struct{ storage.Backend }

func (plain) As(any) bool { return false }

func fence(t *testing.T, b storage.Backend, target string) {
	t.Helper()
	if err := moverOf(t, b).SetFence(limited(t), &target); err != nil {
		t.Fatal(err)
	}
}

func TestOneAtATime(t *testing.T) {
	t.Parallel()
	from, to := fixture.Open(t, "mem://"), fixture.Open(t, "mem://")
	fill(t, from, zoo(50))
	following := make(chan struct{}, 1000)
	over := make(chan error, 1)
	ctx, stop := context.WithCancel(limited(t))
	defer stop()
	go func() {
		_, err := Run(ctx, from, to, quick(Options{Live: true, Progress: func(p Progress) {
			if p.Phase == Following {
				following <- struct{}{}
			}
		}}))
		over <- err
	}()
	<-following
	// A process that waits for heartbeats leaves the migration to the other one.
	o := quick(Options{Live: true, CutoverLag: time.Hour})
	o.takeover = 10 * journalEvery
	if _, err := Run(limited(t), from, to, o); !errors.Is(err, ErrBusy) {
		t.Errorf("got %v, expected ErrBusy", err)
	}
	// A process that does not wait takes over, and the other one detects it.
	stay, leave := context.WithCancel(limited(t))
	defer leave()
	taken := make(chan error, 1)
	go func() {
		_, err := Run(stay, from, to, quick(Options{Live: true}))
		taken <- err
	}()
	if err := <-over; !errors.Is(err, ErrSuperseded) {
		t.Errorf("got %v, expected ErrSuperseded", err)
	}
	leave()
	if err := <-taken; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestRollBack(t *testing.T) {
	t.Parallel()
	from, to := fixture.Open(t, "mem://"), fixture.Open(t, "mem://")
	fill(t, from, zoo(50))
	there := quick(Options{Live: true, CutoverLag: time.Hour})
	if _, err := Run(limited(t), from, to, there); err != nil {
		t.Fatal(err)
	}
	write(t, to, small("later", "1"))
	// Back again, with the writes made meanwhile.
	back := quick(Options{Live: true, CutoverLag: time.Hour, Into: Mirror})
	if _, err := Run(limited(t), to, from, back); !errors.Is(err, storage.ErrFenced) {
		t.Fatalf("got %v, expected ErrFenced", err)
	}
	if err := Unfence(limited(t), from); err != nil {
		t.Fatal(err)
	}
	if _, err := Run(limited(t), to, from, back); err != nil {
		t.Fatal(err)
	}
	if contents(t, from)["later"] != "1" {
		t.Error("the writes to the target were not moved back")
	}
	write(t, from, small("open", "1"))
	wantFenced(t, to)
}

func TestAbortDuringCutover(t *testing.T) {
	t.Parallel()
	from, to := fixture.Open(t, "mem://"), fixture.Open(t, "mem://")
	fill(t, from, zoo(10))
	ctx, stop := context.WithCancel(limited(t))
	o := quick(Options{Live: true, CutoverLag: time.Hour, Progress: func(p Progress) {
		if p.Phase == Cutover {
			stop()
		}
	}})
	if _, err := Run(ctx, from, to, o); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if err := Abort(limited(t), from, to); err != nil {
		t.Fatal(err)
	}
	write(t, from, small("open", "1"))
	if s, err := ReadStatus(limited(t), to); err != nil || s != nil {
		t.Errorf("the target still takes part in %+v, %v", s, err)
	}
}

// TestAnothersFenceStays starts two migrations from one source. After one is complete, the other one cannot open the source.
func TestAnothersFenceStays(t *testing.T) {
	t.Parallel()
	from, one, two := fixture.Open(t, "mem://"), fixture.Open(t, "mem://"), fixture.Open(t, "mem://")
	fill(t, from, zoo(10))
	ctx, stop := context.WithCancel(limited(t))
	o := quick(Options{Live: true, Progress: func(p Progress) {
		if p.Phase == Following {
			stop()
		}
	}})
	o.To = "mem://two"
	if _, err := Run(ctx, from, two, o); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	first := quick(Options{Live: true, CutoverLag: time.Hour})
	first.To = "mem://one"
	if _, err := Run(limited(t), from, one, first); err != nil {
		t.Fatal(err)
	}
	r, err := Run(limited(t), from, two, o)
	if !errors.Is(err, storage.ErrFenced) || !strings.Contains(err.Error(), "mem://one") || r.Next != AbortFirst || r.SourceClosed {
		t.Errorf("got %v, next %q, closed %v: expected ErrFenced with the target", err, r.Next, r.SourceClosed)
	}
	if err := Abort(limited(t), from, two); err == nil || !strings.Contains(err.Error(), "mem://one") {
		t.Errorf("got %v, expected that the source stays closed", err)
	}
	if s, err := ReadStatus(limited(t), two); err != nil || s != nil {
		t.Errorf("the target still takes part in %+v, %v", s, err)
	}
	wantFenced(t, from)
}

// TestAnothersFenceStaysWithoutNames is TestAnothersFenceStays with targets without names.
func TestAnothersFenceStaysWithoutNames(t *testing.T) {
	t.Parallel()
	from, one, two := fixture.Open(t, "mem://"), fixture.Open(t, "mem://"), fixture.Open(t, "mem://")
	fill(t, from, zoo(10))
	ctx, stop := context.WithCancel(limited(t))
	if _, err := Run(ctx, from, two, &Options{takeover: -1, Live: true, Progress: func(p Progress) {
		if p.Phase == Following {
			stop()
		}
	}}); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if _, err := Run(limited(t), from, one, &Options{takeover: -1, Live: true, CutoverLag: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if err := Abort(limited(t), from, two); err == nil {
		t.Error("aborting one migration has opened the source, which the other has closed")
	}
	wantFenced(t, from)
}

func wantFenced(t *testing.T, b storage.Backend) {
	t.Helper()
	if _, err := b.WriteCAS(limited(t), small("late", "")); !errors.Is(err, storage.ErrFenced) {
		t.Errorf("got %v, expected ErrFenced", err)
	}
}
