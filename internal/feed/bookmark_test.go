package feed

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// proving is a line that is a Prover.
type proving struct {
	*line
	counting sync.Mutex
	calls    int
	failures int           // of Newest, before it succeeds
	answer   chan struct{} // if set, Newest reads its answer immediately, but returns it only after a receive from here
	asked    chan struct{} // if set, Newest sends here when it has read its answer
}

func newProving() *proving { return &proving{line: newLine()} }

func (p *proving) Newest(ctx context.Context) (int, error) {
	p.line.mu.Lock()
	at := len(p.events)
	p.line.mu.Unlock()
	p.counting.Lock()
	p.calls++
	failing := p.calls <= p.failures
	p.counting.Unlock()
	if p.asked != nil {
		p.asked <- struct{}{}
	}
	if p.answer != nil {
		select {
		case <-p.answer:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	if failing {
		return 0, errors.New("the database is away")
	}
	return at, nil
}

func (p *proving) HasReached(at, target int) bool { return at >= target }

func (p *proving) count() int {
	p.counting.Lock()
	defer p.counting.Unlock()
	return p.calls
}

// hold makes Run publish nothing until release is called.
func (p *proving) hold() (release func()) {
	held := make(chan struct{})
	p.line.mu.Lock()
	p.gate = held
	p.line.mu.Unlock()
	return func() { close(held) }
}

func ask(t *testing.T, w storage.Watch) {
	t.Helper()
	if err := w.(storage.Bookmarker).Bookmark(t.Context()); err != nil {
		t.Fatalf("Bookmark: %v", err)
	}
}

// wantBookmark returns the number of the request that the bookmark answers.
func wantBookmark(t *testing.T, w storage.Watch, cursor string) (request int64) {
	t.Helper()
	ev := next(t, w)
	if ev.GetBookmark() == nil {
		t.Fatalf("got %v, expected a bookmark", ev)
	}
	if got := ev.GetBookmark().GetCursor(); got != cursor || w.Cursor() != cursor {
		t.Fatalf("the bookmark is at %q and the watch at %q, expected %q", got, w.Cursor(), cursor)
	}
	return ev.GetBookmark().GetRequest()
}

var quietOnly = key.Filter{Group: "g", Kind: "quiet", Partition: "*", Namespace: "*"}

func TestNoBookmarksWithoutProver(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		l := newLine()
		f := New(l, Options[int]{})
		defer f.Close()
		if _, ok := watchFromNow(t, f, l, all).(storage.Bookmarker); ok {
			t.Fatal("the watch is a Bookmarker, although its source is no Prover")
		}
	})
}

func TestBookmarkOfIdleStore(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := newProving()
		p.append("loud")
		f := New(p, Options[int]{})
		defer f.Close()
		for _, filter := range []key.Filter{all, quietOnly} {
			w := watchFromNow(t, f, p.line, filter)
			ask(t, w)
			wantBookmark(t, w, "1")
			ask(t, w)
			wantBookmark(t, w, "1")
		}
	})
}

// An answer that arrives between the check of the proofs and the wait ends the wait, even if nothing else happens.
func TestBookmarkProvenJustBeforeWait(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := newProving()
		p.answer, p.asked = make(chan struct{}), make(chan struct{})
		f := New(p, Options[int]{})
		defer f.Close()
		open := watchFromNow(t, f, p.line, all)
		ask(t, open)
		<-p.asked
		w := open.(bookmarker[int]).watch
		if w.bookmarkDue() {
			t.Fatal("the bookmark is due before the answer")
		}
		proof := w.proofs[0].readyCh
		p.answer <- struct{}{}
		<-proof
		select {
		case <-w.proofCh():
		default:
			t.Fatal("the watch would sleep, although its bookmark is due")
		}
		wantBookmark(t, open, "0")
	})
}

// The answer of a round trip that began before the request proves nothing about changes acknowledged in between.
func TestBookmarkNeedsLaterRoundTrip(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := newProving()
		p.answer, p.asked = make(chan struct{}), make(chan struct{})
		f := New(p, Options[int]{})
		defer f.Close()
		w := watchFromNow(t, f, p.line, all)
		ask(t, w)
		<-p.asked // the first answer is read and not yet returned
		release := p.hold()
		p.append("a")
		ask(t, w)
		p.answer <- struct{}{}
		wantBookmark(t, w, "0")
		<-p.asked
		p.answer <- struct{}{}
		release()
		wantVersion(t, w, 1)
		wantBookmark(t, w, "1")
	})
}

// The newest request has a bookmark, however many requests come before the first one is answered.
func TestNewestBookmarkRequest(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := newProving()
		p.answer, p.asked = make(chan struct{}), make(chan struct{})
		f := New(p, Options[int]{})
		defer f.Close()
		w := watchFromNow(t, f, p.line, all)
		ask(t, w)
		const requests = 4
		for range requests - 1 {
			<-p.asked
			ask(t, w) // for the next round trip
			p.answer <- struct{}{}
		}
		if request := wantBookmark(t, w, "0"); request != 1 {
			t.Fatalf("the first bookmark answers request %d, expected 1", request)
		}
		<-p.asked
		p.answer <- struct{}{}
		if request := wantBookmark(t, w, "0"); request != requests {
			t.Fatalf("the second bookmark answers request %d, expected %d", request, requests)
		}
	})
}

// A request that registers its proof late does not replace the later proof of a concurrent request.
func TestConcurrentBookmarkRequests(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := newProving()
		p.answer, p.asked = make(chan struct{}), make(chan struct{})
		f := New(p, Options[int]{})
		defer f.Close()
		open := watchFromNow(t, f, p.line, all)
		ask(t, open)
		<-p.asked
		w := open.(bookmarker[int]).watch
		second, err := w.addRequest(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		r := w.currentRun()
		proof := r.rounds.prove() // not registered yet
		p.answer <- struct{}{}
		<-p.asked // its position is read
		release := p.hold()
		p.append("a")
		ask(t, open) // the third request
		if !w.expect(r, proof, second) {
			t.Fatal("the watch has another run")
		}
		if request := wantBookmark(t, open, "0"); request != 1 {
			t.Fatalf("the first bookmark answers request %d, expected 1", request)
		}
		p.answer <- struct{}{} // for the second request
		<-p.asked
		p.answer <- struct{}{} // for the third one
		release()
		wantVersion(t, open, 1)
		if request := wantBookmark(t, open, "1"); request != 3 {
			t.Fatalf("the last bookmark answers request %d, expected 3", request)
		}
	})
}

// A bookmark answers earlier requests that are not registered yet: no later bookmark has a lower number.
func TestBookmarkAnswersUnregisteredRequest(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := newProving()
		f := New(p, Options[int]{})
		defer f.Close()
		open := watchFromNow(t, f, p.line, all)
		w := open.(bookmarker[int]).watch
		first, err := w.addRequest(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ask(t, open) // the second request
		if request := wantBookmark(t, open, "0"); request != 2 {
			t.Fatalf("the first bookmark answers request %d, expected 2", request)
		}
		r := w.currentRun()
		late := r.rounds.prove()
		if !w.expect(r, late, first) {
			t.Fatal("the watch has another run")
		}
		<-late.readyCh
		p.append("a")
		wantVersion(t, open, 1)
		ask(t, open)
		if request := wantBookmark(t, open, "1"); request != 3 {
			t.Fatalf("the next bookmark answers request %d, expected 3", request)
		}
	})
}

// Requests during a round trip, of any watch, share the next one.
func TestBookmarksShareRoundTrip(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := newProving()
		p.answer, p.asked = make(chan struct{}), make(chan struct{})
		f := New(p, Options[int]{})
		defer f.Close()
		first := watchFromNow(t, f, p.line, all)
		ask(t, first)
		<-p.asked
		var others []storage.Watch
		for range 100 {
			w := watchFromNow(t, f, p.line, all)
			ask(t, w)
			ask(t, w)
			others = append(others, w)
		}
		p.answer <- struct{}{}
		<-p.asked
		p.answer <- struct{}{}
		wantBookmark(t, first, "0")
		for _, w := range others {
			wantBookmark(t, w, "0")
		}
		if n := p.count(); n != 2 {
			t.Errorf("%d requests took %d round trips, expected 2", 1+2*len(others), n)
		}
		p.append("a")
		for _, w := range others {
			wantVersion(t, w, 1) // and no second bookmark before it
		}
	})
}

// Endless later requests do not delay an earlier one.
func TestBookmarkIsNotDelayed(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := newProving()
		p.answer, p.asked = make(chan struct{}), make(chan struct{})
		f := New(p, Options[int]{})
		defer f.Close()
		w := watchFromNow(t, f, p.line, all)
		ask(t, w)
		for range 10 {
			<-p.asked
			ask(t, w)
			p.answer <- struct{}{}
			wantBookmark(t, w, "0")
		}
		<-p.asked
		p.answer <- struct{}{}
		wantBookmark(t, w, "0")
	})
}

func TestBookmarkFollowsSnapshot(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := newProving()
		p.append("a")
		p.append("a")
		f := New(p, Options[int]{})
		defer f.Close()
		m, err := f.Start(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		w := f.Watch(m, all, SliceSnapshot([]*resourcepb.Resource{p.events[0].Resource, p.events[1].Resource}), 2)
		ask(t, w)
		p.append("a")
		wantVersion(t, w, 1)
		ask(t, w)
		wantVersion(t, w, 2)
		if next(t, w).GetEndOfSnapshot() == nil {
			t.Fatal("expected the end of the snapshot")
		}
		for bookmarks := 0; ; {
			ev := next(t, w)
			if ev.GetBookmark() == nil {
				if ev.GetUpsert().GetResource().GetVersion() != "3" {
					t.Fatalf("got %v", ev)
				}
				break
			}
			if bookmarks++; bookmarks > 1 {
				t.Fatal("the second bookmark came before the change that preceded its request")
			}
		}
		wantBookmark(t, w, "3")
	})
}

// A watch that reads history returns its bookmark when it has reached the proven position.
func TestBookmarkDoesNotOvertakeHistory(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := newProving()
		for range 10 {
			p.append("a")
		}
		p.slow = make(chan struct{})
		f := New(p, Options[int]{Page: 3, MaxEvents: 2})
		defer f.Close()
		w, err := f.Resume(t.Context(), all, 0, "given")
		if err != nil {
			t.Fatal(err)
		}
		ask(t, w)
		for p.count() == 0 {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := w.Next(ctx); !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		}
		close(p.slow)
		for i := range 10 {
			wantVersion(t, w, i+1)
		}
		wantBookmark(t, w, "10")
		// Another watch falls out of the log.
		slow := watchFromNow(t, f, p.line, all)
		fast := watchFromNow(t, f, p.line, all)
		for i := range 10 {
			wantVersion(t, fast, p.append("a"))
			wantVersion(t, w, 11+i)
		}
		ask(t, slow)
		for i := range 10 {
			wantVersion(t, slow, 11+i)
		}
		wantBookmark(t, slow, "20")
	})
}

// A watch that resumes from the newest position gets its bookmark without any change, and its cursor advances.
func TestBookmarkAfterResume(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := newProving()
		p.append("loud")
		p.append("loud")
		f := New(p, Options[int]{})
		defer f.Close()
		for from := range 3 {
			w, err := f.Resume(t.Context(), quietOnly, from, "given")
			if err != nil {
				t.Fatal(err)
			}
			ask(t, w)
			wantBookmark(t, w, "2")
		}
	})
}

// A cursor that history does not confirm proves nothing, however new its position claims to be.
func TestNoBookmarkForUnconfirmedCursor(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := newProving()
		p.append("a")
		p.oldest = 100
		f := New(p, Options[int]{})
		defer f.Close()
		w, err := f.Resume(t.Context(), all, 50, "50")
		if err != nil {
			t.Fatal(err)
		}
		ask(t, w)
		<-w.(bookmarker[int]).proofs[0].readyCh
		if ev, err := w.Next(t.Context()); !errors.Is(err, storage.ErrCompacted) {
			t.Fatalf("got %v, %v; expected compacted history", ev, err)
		}
		if err := w.(storage.Bookmarker).Bookmark(t.Context()); !errors.Is(err, storage.ErrWatchClosed) || !errors.Is(err, storage.ErrCompacted) {
			t.Fatalf("Bookmark of an ended watch: %v", err)
		}
	})
}

// The bookmark comes when the proven position was published and passed, even if the filter excludes all events.
func TestBookmarkOfQuietFilter(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := newProving()
		f := New(p, Options[int]{})
		defer f.Close()
		w := watchFromNow(t, f, p.line, quietOnly)
		for i := range 20 {
			release := p.hold()
			p.append("loud")
			ask(t, w)
			got := make(chan string, 1)
			go func() {
				ev, err := w.Next(context.WithoutCancel(t.Context()))
				if err != nil {
					got <- err.Error()
					return
				}
				got <- ev.GetBookmark().GetCursor()
			}()
			release()
			if cursor := <-got; cursor != strconv.Itoa(i+1) {
				t.Fatalf("got a bookmark at %q, expected %d", cursor, i+1)
			}
		}
	})
}

func TestBookmarkWaitsForTheDatabase(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := newProving()
		p.failures = 3
		f := New(p, Options[int]{})
		defer f.Close()
		w := watchFromNow(t, f, p.line, all)
		ask(t, w)
		wantBookmark(t, w, "0")
		if n := p.count(); n != 4 {
			t.Errorf("%d round trips, expected 4", n)
		}
	})
}

// The end of the run ends the watch, with or without a pending request, and leaves no goroutine.
func TestRunEndsDuringBookmark(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"watch", "feed", "source"} {
		t.Run(how, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				p := newProving()
				p.answer = make(chan struct{})
				f := New(p, Options[int]{})
				defer f.Close()
				w := watchFromNow(t, f, p.line, all)
				ask(t, w)
				failed := make(chan error, 1)
				go func() {
					_, err := w.Next(context.WithoutCancel(t.Context()))
					failed <- err
				}()
				broken := errors.New("broken")
				want := []error{storage.ErrWatchClosed}
				switch how {
				case "watch":
					w.Close()
				case "feed":
					f.Close()
					want = append(want, storage.ErrClosed)
				case "source":
					p.breakDown(broken)
					want = append(want, broken)
				}
				err := <-failed
				again := w.(storage.Bookmarker).Bookmark(t.Context())
				for _, one := range want {
					if !errors.Is(err, one) || !errors.Is(again, one) {
						t.Errorf("Next returned %v and Bookmark %v, want %v", err, again, one)
					}
				}
			})
		})
	}
}

func TestBookmarkWithEndedContext(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := newProving()
		f := New(p, Options[int]{})
		defer f.Close()
		w := watchFromNow(t, f, p.line, all)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := w.(storage.Bookmarker).Bookmark(ctx); !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v", err)
		}
		wantVersion(t, w, p.append("a"))
		if n := p.count(); n != 0 {
			t.Errorf("%d round trips", n)
		}
		w.Close()
		if err := w.(storage.Bookmarker).Bookmark(ctx); !errors.Is(err, storage.ErrWatchClosed) {
			t.Fatalf("Bookmark of a closed watch: %v", err)
		}
	})
}
