package feed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/leaks"
	"github.com/ashlar-dev/storage/resourcepb"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// inBubble runs a test with a clock of its own, which advances when all goroutines of the test block. The test fails if they block for ever.
func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Parallel()
	synctest.Test(t, test)
}

// line is a store whose history is a sequence of numbered events, retained from oldest on.
type line struct {
	mu       sync.Mutex
	events   []*driver.Event[int]
	oldest   int
	wake     chan struct{}
	fail     error         // ends Run
	failures int           // failures of History before it succeeds
	pages    int           // calls of History
	slow     chan struct{} // if set, History waits until it is closed
	gate     chan struct{} // if set, Run publishes nothing until it is closed
	size     int           // of new events, 0 for 100
}

func newLine() *line { return &line{wake: make(chan struct{})} }

func (l *line) append(kind string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.events) + 1
	k := key.Key{Group: "g", Kind: kind, Name: "n"}
	res := &resourcepb.Resource{Id: k.ID("u", ""), Version: strconv.Itoa(n)}
	l.events = append(l.events, &driver.Event[int]{Key: k, Resource: res, Size: cmp.Or(l.size, 100), At: n})
	close(l.wake)
	l.wake = make(chan struct{})
	return n
}

// appendDamage appends a change that cannot be read.
func (l *line) appendDamage(kind string, damage error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, &driver.Event[int]{Key: key.Key{Group: "g", Kind: kind, Name: "n"}, Damage: damage, At: len(l.events) + 1})
	close(l.wake)
	l.wake = make(chan struct{})
}

func (l *line) open() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gate = nil
}

func (l *line) breakDown(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fail = err
	close(l.wake)
	l.wake = make(chan struct{})
}

func (l *line) Run(ctx context.Context, ready func(int), publish func([]*driver.Event[int], int)) error {
	l.mu.Lock()
	at := len(l.events)
	l.mu.Unlock()
	ready(at)
	for {
		l.mu.Lock()
		events, wake, fail, gate := l.events[at:], l.wake, l.fail, l.gate
		l.mu.Unlock()
		if gate != nil && len(events) > 0 {
			select {
			case <-gate:
				l.open()
				continue
			case <-ctx.Done():
				return nil
			}
		}
		if len(events) > 0 {
			at += len(events)
			publish(events, at)
			continue
		}
		if fail != nil {
			return fail
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return nil
		}
	}
}

func (l *line) History(from int, _ *key.Filter) driver.History[int] {
	return driver.Pages(from, l.page)
}

func (l *line) page(ctx context.Context, from, limit int) ([]*driver.Event[int], int, bool, error) {
	if l.slow != nil {
		select {
		case <-l.slow:
		case <-ctx.Done():
			return nil, 0, false, ctx.Err()
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pages++
	if l.failures > 0 {
		l.failures--
		return nil, 0, false, errors.New("stumbled")
	}
	if from < l.oldest {
		return nil, 0, false, storage.ErrCompacted
	}
	events := l.events[from:]
	if len(events) > limit {
		return events[:limit], from + limit, true, nil
	}
	return events, len(l.events), false, nil
}

func (l *line) Contains(at int, ev *driver.Event[int]) bool { return ev.At <= at }
func (l *line) Advance(_ int, ev *driver.Event[int]) int    { return ev.At }
func (l *line) Merge(at, end int) int                       { return max(at, end) }
func (l *line) Cursor(at int) string                        { return strconv.Itoa(at) }

var all = key.Filter{Group: "*", Kind: "*", Partition: "*", Namespace: "*"}

func next(t *testing.T, w storage.Watch) *resourcepb.WatchEvent {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ev, err := w.Next(ctx)
	if err != nil {
		t.Fatalf("Next: %v", err)
	}
	return ev
}

func wantVersion(t *testing.T, w storage.Watch, version int) {
	t.Helper()
	if got := next(t, w).GetUpsert().GetResource().GetVersion(); got != strconv.Itoa(version) {
		t.Fatalf("got version %q, expected %d", got, version)
	}
}

func watchFromNow(t *testing.T, f *Feed[int], l *line, filter key.Filter) storage.Watch {
	t.Helper()
	m, err := f.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	l.mu.Lock()
	at := len(l.events)
	l.mu.Unlock()
	w := f.Watch(m, filter, SliceSnapshot(nil), at)
	if next(t, w).GetEndOfSnapshot() == nil {
		t.Fatal("no end of snapshot")
	}
	return w
}

// The snapshot is read after the mark, so it contains events that are also in the log. They are not repeated.
func TestJoinSkipsSnapshotEvents(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		l := newLine()
		f := New(l, Options[int]{InSnapshot: "inside"})
		defer f.Close()
		m, err := f.Start(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		l.append("a")
		l.append("a")
		snapshot := []*resourcepb.Resource{l.events[1].Resource}
		w := f.Watch(m, all, SliceSnapshot(snapshot), 2)
		defer w.Close()
		if w.Cursor() != "inside" {
			t.Fatalf("cursor %q before the snapshot", w.Cursor())
		}
		wantVersion(t, w, 2)
		if w.Cursor() != "inside" {
			t.Fatalf("cursor %q in the snapshot", w.Cursor())
		}
		if next(t, w).GetEndOfSnapshot() == nil {
			t.Fatal("expected the end of the snapshot")
		}
		if w.Cursor() != "2" {
			t.Fatalf("cursor %q after the snapshot, expected 2", w.Cursor())
		}
		l.append("a")
		wantVersion(t, w, 3)
		if w.Cursor() != "3" {
			t.Fatalf("cursor %q, expected 3", w.Cursor())
		}
	})
}

// A watch that falls out of the log continues from history and joins the log again, under load.
func TestSlowWatchContinuesFromHistory(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		l := newLine()
		f := New(l, Options[int]{MaxEvents: 7, Page: 3})
		defer f.Close()
		slow := watchFromNow(t, f, l, all)
		defer slow.Close()
		fast := watchFromNow(t, f, l, all)
		defer fast.Close()
		const n = 500
		for i := 1; i <= n; i++ {
			l.append("a")
			wantVersion(t, fast, i)
		}
		var writer sync.WaitGroup
		writer.Go(func() {
			for range n {
				l.append("a")
			}
		})
		for i := 1; i <= 2*n; i++ {
			wantVersion(t, slow, i)
		}
		writer.Wait()
		if l.pages == 0 {
			t.Fatal("the slow watch did not fall out of the log")
		}
	})
}

func TestResumeAtEveryPosition(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		l := newLine()
		for range 10 {
			l.append("a")
		}
		f := New(l, Options[int]{Page: 4})
		defer f.Close()
		for from := range 11 {
			w, err := f.Resume(t.Context(), all, from, fmt.Sprint("given ", from))
			if err != nil {
				t.Fatal(err)
			}
			if got := w.Cursor(); got != fmt.Sprint("given ", from) {
				t.Fatalf("cursor %q before the first event", got)
			}
			for i := from + 1; i <= 10; i++ {
				wantVersion(t, w, i)
			}
			w.Close()
		}
	})
}

func TestCompactedHistoryEndsWatch(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		l := newLine()
		l.append("a")
		l.oldest = 1
		f := New(l, Options[int]{})
		defer f.Close()
		w, err := f.Resume(t.Context(), all, 0, "0")
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			_, err = w.Next(t.Context())
			if !errors.Is(err, storage.ErrWatchClosed) || !errors.Is(err, storage.ErrCompacted) {
				t.Fatalf("got %v", err)
			}
		}
	})
}

func TestFailedHistoryIsRetried(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		l := newLine()
		l.append("a")
		l.failures = 3
		f := New(l, Options[int]{})
		defer f.Close()
		w, err := f.Resume(t.Context(), all, 0, "0")
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		wantVersion(t, w, 1)
	})
}

// A page of history that takes longer than the deadline of any Next is read once and completely.
func TestShortDeadlinesInHistory(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		l := newLine()
		l.append("a")
		l.slow = make(chan struct{})
		f := New(l, Options[int]{})
		defer f.Close()
		w, err := f.Resume(t.Context(), all, 0, "0")
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			if ev, err := w.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("%v, %v; want the context's error", ev, err)
			}
			cancel()
		}
		close(l.slow)
		wantVersion(t, w, 1)
		if l.pages != 1 {
			t.Errorf("history was read %d times", l.pages)
		}
	})
}

// Close of the watch or of the feed ends the read of history.
func TestCloseDuringHistory(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for _, closeFeed := range []bool{true, false} {
			l := newLine()
			l.slow = make(chan struct{})
			f := New(l, Options[int]{})
			w, err := f.Resume(t.Context(), all, 0, "0")
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() {
				_, err := w.Next(t.Context())
				ended <- err
			}()
			want := storage.ErrWatchClosed
			if closeFeed {
				want = storage.ErrClosed
				f.Close()
			} else {
				w.Close()
			}
			if err := <-ended; !errors.Is(err, want) || !errors.Is(err, storage.ErrWatchClosed) {
				t.Errorf("Next returned %v, want %v", err, want)
			}
			w.Close()
			f.Close()
		}
	})
}

// The cursor of a quiet filter advances while Next waits.
func TestQuietCursorAdvances(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		l := newLine()
		f := New(l, Options[int]{})
		defer f.Close()
		w := watchFromNow(t, f, l, key.Filter{Group: "g", Kind: "quiet", Partition: "*", Namespace: "*"})
		defer w.Close()
		ctx, cancel := context.WithCancel(t.Context())
		waiting := make(chan error, 1)
		go func() {
			_, err := w.Next(ctx)
			waiting <- err
		}()
		for range 3 { // from the second round on it waits in the log
			want := strconv.Itoa(l.append("loud"))
			for deadline := time.Now().Add(time.Minute); w.Cursor() != want; {
				if time.Now().After(deadline) {
					t.Fatalf("the cursor stays at %q, expected %s", w.Cursor(), want)
				}
				<-time.After(time.Millisecond)
			}
		}
		cancel()
		if err := <-waiting; !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v", err)
		}
		l.append("quiet")
		wantVersion(t, w, 4)
	})
}

// A watch that sleeps while events of others pass wakes for a matching event.
func TestSleepingWatchWakesForMatch(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		l := newLine()
		f := New(l, Options[int]{MaxEvents: 40})
		defer f.Close()
		w := watchFromNow(t, f, l, key.Filter{Group: "g", Kind: "quiet", Partition: "*", Namespace: "*"})
		defer w.Close()
		for range 5 {
			for range 15 {
				l.append("loud")
			}
			wantVersion(t, w, l.append("quiet"))
		}
		if l.pages != 0 {
			t.Errorf("%d pages of history were read", l.pages)
		}
	})
}

func TestSourceErrorFollowsPublishedEvents(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		l := newLine()
		f := New(l, Options[int]{})
		defer f.Close()
		w := watchFromNow(t, f, l, all)
		l.append("a")
		broken := errors.New("broken")
		l.breakDown(broken)
		wantVersion(t, w, 1)
		if _, err := w.Next(t.Context()); !errors.Is(err, storage.ErrWatchClosed) || !errors.Is(err, broken) {
			t.Fatalf("got %v", err)
		}
		l.breakDown(nil)
		again := watchFromNow(t, f, l, all)
		defer again.Close()
		l.append("a")
		wantVersion(t, again, 2)
	})
}

func TestCloseWhileNextWaits(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"watch", "feed"} {
		t.Run(how, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				l := newLine()
				f := New(l, Options[int]{})
				defer f.Close()
				w := watchFromNow(t, f, l, all)
				failed := make(chan error, 1)
				go func() {
					_, err := w.Next(context.Background())
					failed <- err
				}()
				if how == "watch" {
					w.Close()
					w.Close()
				} else {
					f.Close()
				}
				err := <-failed
				if !errors.Is(err, storage.ErrWatchClosed) || (how == "feed") != errors.Is(err, storage.ErrClosed) {
					t.Fatalf("got %v", err)
				}
				if _, err := f.Start(t.Context()); how == "feed" && !errors.Is(err, storage.ErrClosed) {
					t.Fatalf("Start on a closed feed: %v", err)
				}
			})
		})
	}
}

func TestClosedWatchDropsBuffer(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		l := newLine()
		f := New(l, Options[int]{})
		defer f.Close()
		w := watchFromNow(t, f, l, all)
		l.append("a")
		l.append("a")
		wantVersion(t, w, 1)
		w.Close()
		if _, err := w.Next(t.Context()); !errors.Is(err, storage.ErrWatchClosed) {
			t.Fatalf("got %v", err)
		}
	})
}

// The source ends some time after the last watch was closed, and starts again with the next one.
func TestIdleTimeout(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		l := newLine()
		f := New(l, Options[int]{IdleTimeout: time.Millisecond})
		defer f.Close()
		w := watchFromNow(t, f, l, all)
		f.mu.Lock()
		first := f.current
		f.mu.Unlock()
		w.Close()
		<-first.endCh
		again := watchFromNow(t, f, l, all)
		defer again.Close()
		l.append("a")
		wantVersion(t, again, 1)
	})
}

// The idle timeout counts from the close of the last watch.
func TestIdleTimeoutCountsFromTheLastClose(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		l := newLine()
		f := New(l, Options[int]{IdleTimeout: time.Minute})
		defer f.Close()
		w := watchFromNow(t, f, l, all)
		first := w.(*watch[int]).run
		w.Close()
		<-time.After(30 * time.Second)
		w = watchFromNow(t, f, l, all)
		<-time.After(29 * time.Second)
		w.Close()
		<-time.After(30 * time.Second)
		synctest.Wait()
		if isClosed(first.endCh) {
			t.Fatal("the source ended after half of its idle timeout")
		}
		<-time.After(31 * time.Second)
		synctest.Wait()
		if !isClosed(first.endCh) {
			t.Fatal("the source did not end")
		}
	})
}

// A Next that meets Close either returns an event, or leaves the cursor before it.
func TestCloseDuringDelivery(t *testing.T) {
	for _, first := range []string{"an event", "the end of the snapshot"} {
		t.Run(first, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				l := newLine()
				l.append("a")
				var w storage.Watch
				closing := func() { w.(*watch[int]).cancel() } // as Close begins
				f := New(l, Options[int]{InSnapshot: "inside", OnDelivered: func(*driver.Event[int]) { closing() }})
				defer f.Close()
				before, after := "1", "2"
				if first == "an event" {
					w = watchFromNow(t, f, l, all)
					l.append("a")
				} else {
					before, after = "inside", "1"
					m, err := f.Start(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					w = f.Watch(m, all, &unsteady{SliceSnapshot(nil), []func() error{func() error { closing(); return io.EOF }}}, 1)
				}
				defer w.Close()
				_, err := w.Next(t.Context())
				want := after
				if err != nil {
					want = before
				}
				if got := w.Cursor(); got != want {
					t.Errorf("Next returned %v and the cursor is %q, expected %q", err, got, want)
				}
			})
		})
	}
}

// A watch that is closed after its feed, without a call in between, reports both.
func TestWatchClosedAfterFeed(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		l := newLine()
		f := New(l, Options[int]{})
		w := watchFromNow(t, f, l, all)
		f.Close()
		w.Close()
		if _, err := w.Next(t.Context()); !errors.Is(err, storage.ErrClosed) || !errors.Is(err, storage.ErrWatchClosed) {
			t.Errorf("got %v, expected ErrClosed and ErrWatchClosed", err)
		}
	})
}
