package migrate

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/resourcepb"
)

// scripted is a watch with given events, and then an error, or no event any more.
type scripted struct {
	storage.Watch
	events []*resourcepb.WatchEvent
	err    error
	asked  int // calls of Bookmark
}

func (w *scripted) Next(ctx context.Context) (*resourcepb.WatchEvent, error) {
	if len(w.events) > 0 {
		ev := w.events[0]
		w.events = w.events[1:]
		return ev, nil
	}
	if w.err != nil {
		return nil, w.err
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

func (w *scripted) Bookmark(context.Context) error { w.asked++; return nil }
func (w *scripted) Cursor() string                 { return "cursor" }
func (w *scripted) Close()                         {}

// watchFrom is a source that answers WatchFrom.
type watchFrom func() (storage.Watch, error)

func (f watchFrom) WatchFrom(context.Context, storage.UnversionedType, *resourcepb.Tenancy, string, string) (storage.Watch, error) {
	return f()
}

// countedNotes is a journal that counts its writes.
type countedNotes struct {
	driver.Mover
	writes int
}

func (n *countedNotes) WriteNote(context.Context, string, []byte, string) (string, error) {
	n.writes++
	return fmt.Sprint(n.writes), nil
}

// A batch ends at the maximum number of events, or with the event that reaches the maximum size.
func TestEventsOfABatch(t *testing.T) {
	t.Parallel()
	large := small("large", "")
	for want := 1 << 20; codec.Size(large) != want; {
		large.Data = &anypb.Any{TypeUrl: "type.example/Value", Value: make([]byte, len(large.Data.Value)+want-codec.Size(large))}
	}
	for _, c := range []struct {
		res       *resourcepb.Resource
		have, got int
	}{
		{small("a", "1"), maxEvents + 1, maxEvents},
		{small("a", "1"), 3, 3},
		{large, 17, maxEventBytes >> 20},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := &scripted{}
			for range c.have {
				w.events = append(w.events, &resourcepb.WatchEvent{Event: &resourcepb.WatchEvent_Upsert_{Upsert: &resourcepb.WatchEvent_Upsert{Resource: c.res}}})
			}
			f := &follower{watch: w}
			if b, err := f.collect(t.Context()); err != nil || b.events != c.got || len(w.events) != c.have-c.got || len(b.changes) != 1 {
				t.Errorf("%d events in the batch, %d left, expected %d; %v", b.events, len(w.events), c.got, err)
			}
		})
	}
}

// A bookmark is requested four times within the allowed lag, within limits, one at a time. It must arrive within the timeout.
func TestBookmarkRequests(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for lag, want := range map[time.Duration]time.Duration{0: tick, 200 * ms: 50 * ms, 8 * ms: 10 * ms, time.Hour: tick} {
		synctest.Test(t, func(t *testing.T) {
			w := &scripted{}
			began := time.Now()
			f := &follower{m: &migration{o: Options{CutoverLag: lag, Timeout: time.Minute}}, marks: w, asOf: began, lastEventAt: began}
			for ; w.asked == 0; time.Sleep(ms) {
				if err := f.ask(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if got := f.bookmarkRequestedAt.Sub(began); got != want {
				t.Errorf("lag %v: asked after %v, expected %v", lag, got, want)
			}
			time.Sleep(time.Minute - ms)
			if err := f.ask(t.Context()); err != nil || w.asked != 1 {
				t.Errorf("within the timeout: asked %d times, %v", w.asked, err)
			}
			time.Sleep(1) //nolint:staticcheck // the first moment after the timeout
			if err := f.ask(t.Context()); !errors.Is(err, storage.ErrInconsistent) {
				t.Errorf("after the timeout: %v", err)
			}
		})
	}
}

// The position is recorded regularly while nothing happens, and following continues.
func TestPositionIsRecorded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		notes := &countedNotes{}
		m := &migration{o: Options{Timeout: time.Minute}, stats: newStats(nil), journal: &journal{store: notes}}
		began := time.Now()
		f := &follower{m: m, watch: &scripted{}, journalWrittenAt: began, lastEventAt: began}
		err := f.run(t.Context(), func(*follower) bool { return time.Since(began) >= 4*journalEvery })
		if err != nil || notes.writes != 4 || time.Since(began) != 4*journalEvery {
			t.Errorf("%d notes in %v, expected 4 in %v; %v", notes.writes, time.Since(began), 4*journalEvery, err)
		}
	})
}

// A watch that ends is opened again, until it has returned nothing for longer than the timeout.
func TestWatchesThatEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		opened := 0
		m := &migration{o: Options{Timeout: 4 * tick}, stats: newStats(nil)}
		m.resumer = watchFrom(func() (storage.Watch, error) {
			opened++
			return &scripted{err: storage.ErrWatchClosed}, nil
		})
		began := time.Now()
		_, err := m.follow(t.Context(), "", time.Time{}, func(*follower) bool { return false })
		if !errors.Is(err, storage.ErrWatchClosed) || opened != 6 || time.Since(began) != 5*tick {
			t.Errorf("%d watches in %v, %v", opened, time.Since(began), err)
		}
	})
}

// A source that loses its history is compared again, but not forever, unless changes arrive in between.
func TestLostHistory(t *testing.T) {
	t.Parallel()
	m := &migration{o: Options{Timeout: time.Minute}, stats: newStats(nil)}
	events := int64(0)
	m.resumer = watchFrom(func() (storage.Watch, error) {
		m.stats.events.Add(events)
		return nil, storage.ErrCompacted
	})
	lost := 0
	again := func(times int) {
		t.Helper()
		for i := range times {
			if next, _, err := m.followOn(t.Context(), "", &lost); err != nil || next != Copying {
				t.Fatalf("the history was lost %d times: %q, %v", i+1, next, err)
			}
		}
	}
	again(maxPasses - 1)
	events = 1
	again(1)
	events = 0
	again(maxPasses - 2)
	if _, _, err := m.followOn(t.Context(), "", &lost); !errors.Is(err, storage.ErrCompacted) {
		t.Errorf("the history was lost %d times: %v", maxPasses, err)
	}
	m.o.Into = Merge
	if _, _, err := m.followOn(t.Context(), "", new(int)); !errors.Is(err, errStuck) {
		t.Errorf("a merge without history: %v", err)
	}
}

// Without bookmarks, a comparison in less than the allowed lag starts the cutover. It is repeated a few times.
func TestLagOfComparisons(t *testing.T) {
	t.Parallel()
	const lag = time.Second
	for _, c := range []struct {
		took, lag time.Duration
		passes    int
		cutover   chan struct{}
		next      Phase
		lost      int // whether it followed
		err       error
	}{
		{took: lag - 1, lag: lag, next: Cutover},
		{took: lag, lag: lag, next: Copying},
		{took: lag, lag: lag, passes: maxPasses - 1, next: Copying},
		{took: lag, lag: lag, passes: maxPasses, err: ErrUnsupported},
		{took: lag, lag: lag, passes: maxPasses, cutover: make(chan struct{}), next: Copying, lost: 1},
		{took: lag, next: Copying, lost: 1},
	} {
		m := &migration{o: Options{Timeout: time.Minute, CutoverLag: c.lag, Cutover: c.cutover}, stats: newStats(nil), comparePasses: c.passes}
		m.resumer = watchFrom(func() (storage.Watch, error) { return nil, storage.ErrCompacted })
		synctest.Test(t, func(t *testing.T) {
			m.stats.countFollowed(time.Now())
			time.Sleep(c.took)
			lost := 0
			if next, _, err := m.followOn(t.Context(), "", &lost); next != c.next || lost != c.lost || !errors.Is(err, c.err) {
				t.Errorf("%+v: %q, followed %d times, %v", c, next, lost, err)
			}
			f := &follower{asOf: time.Now()}
			time.Sleep(c.took)
			if wanted := m.cutoverWanted(f); wanted != (c.took < c.lag) {
				t.Errorf("%v behind, allowed %v: cutover %v", c.took, c.lag, wanted)
			}
		})
	}
}

// Another resource under a key is a conflict only at the end of a merge. Otherwise it is replaced.
func TestConflictPolicies(t *testing.T) {
	t.Parallel()
	for _, into := range []Into{Empty, Merge, Overwrite, Mirror} {
		m := &migration{o: Options{Into: into}}
		during, err := m.conflictDuringCopy(nil)
		atEnd, conflict := m.conflictAtCutover(nil)
		want := replace
		if into == Merge {
			want = leave
		}
		if during != want || atEnd != want || err != nil || errors.Is(conflict, ErrConflict) != (into == Merge) {
			t.Errorf("Into %d: %v, %v; at the end %v, %v", into, during, err, atEnd, conflict)
		}
	}
}
