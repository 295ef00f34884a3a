package feed

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// ledger is a line with commits, whose batches and pages may end inside a commit.
type ledger struct {
	*proving
	batch int  // the number of events that Run publishes at a time
	spare bool // pages omit excluded events, except the last event
}

// add appends commits, each a list of kinds.
func (l *ledger) add(commits ...[]string) {
	l.line.mu.Lock()
	defer l.line.mu.Unlock()
	for _, kinds := range commits {
		id := int64(len(l.events) + 1)
		if len(kinds) == 1 {
			id = 0
		}
		for _, kind := range kinds {
			n := len(l.events) + 1
			k := key.Key{Group: "g", Kind: kind, Name: "n"}
			res := &resourcepb.Resource{Id: k.ID("u", ""), Version: strconv.Itoa(n)}
			l.events = append(l.events, &driver.Event[int]{Key: k, Resource: res, Size: 100, At: n, Commit: id})
		}
	}
	close(l.wake)
	l.wake = make(chan struct{})
}

func (l *ledger) Run(ctx context.Context, ready func(int), publish func([]*driver.Event[int], int)) error {
	at := -1
	return l.line.Run(ctx, func(end int) { at = end; ready(end) }, func([]*driver.Event[int], int) {
		for {
			events, end, more, _ := l.page(ctx, at, l.batch)
			if len(events) == 0 {
				return
			}
			publish(events, end)
			if at = end; !more {
				return
			}
		}
	})
}

// page returns the events after from. The last one has CommitContinues set if its commit continues.
func (l *ledger) page(ctx context.Context, from, limit int) ([]*driver.Event[int], int, bool, error) {
	events, end, more, err := l.line.page(ctx, from, limit)
	l.line.mu.Lock()
	defer l.line.mu.Unlock()
	if n := len(events); more && events[n-1].Commit != 0 && l.events[end].Commit == events[n-1].Commit {
		last := *events[n-1]
		last.CommitContinues = true
		events = append(append([]*driver.Event[int](nil), events[:n-1]...), &last)
	}
	return events, end, more, err
}

func (l *ledger) History(from int, f *key.Filter) driver.History[int] {
	return driver.Pages(from, func(ctx context.Context, from, limit int) ([]*driver.Event[int], int, bool, error) {
		events, end, more, err := l.page(ctx, from, limit)
		var kept []*driver.Event[int]
		for _, ev := range events {
			if !l.spare || ev.CommitContinues || f.Match(&ev.Key) {
				kept = append(kept, ev)
			}
		}
		return kept, end, more, err
	})
}

// marks returns the events that a watch with filter f returns after a position, each with its expected More.
func (l *ledger) marks(from int, f *key.Filter) []string {
	var all []string
	var last *driver.Event[int]
	for _, ev := range l.events[from:] {
		if !f.Match(&ev.Key) {
			continue
		}
		if last != nil {
			all = append(all, fmt.Sprint(last.At, last.Commit != 0 && last.Commit == ev.Commit))
		}
		last = ev
	}
	if last != nil {
		all = append(all, fmt.Sprint(last.At, false))
	}
	return all
}

// Every event reports correctly whether the next event for this filter belongs to the same commit: wherever batches and pages end,
// wherever the watch starts, in history and in the log, and when it moves from one to the other. Bookmarks never come within a
// commit.
func TestMore(t *testing.T) {
	t.Parallel()
	for _, spare := range []bool{false, true} {
		for size := 1; size <= 7; size += 2 {
			for _, capacity := range []int{3, 1000} {
				t.Run(fmt.Sprint(spare, size, capacity), func(t *testing.T) {
					inBubble(t, func(t *testing.T) {
						testMore(t, &ledger{proving: newProving(), batch: size, spare: spare}, Options[int]{Page: size, MaxEvents: capacity})
					})
				})
			}
		}
	}
}

func testMore(t *testing.T, l *ledger, opts Options[int]) {
	kinds := []string{"a", "quiet", "b"}
	some := func() (commits [][]string) {
		for range 12 {
			commit := make([]string, 1+rand.IntN(6))
			for i := range commit {
				commit[i] = kinds[rand.IntN(len(kinds))]
			}
			commits = append(commits, commit)
		}
		return commits
	}
	l.add(some()...)
	middle := len(l.events)
	f := New(l, opts)
	defer f.Close()
	type reading struct {
		w      storage.Watch
		from   int
		filter key.Filter
	}
	var readings []reading
	for _, filter := range []key.Filter{all, quietOnly} {
		for from := range middle + 1 {
			w, err := f.Resume(t.Context(), filter, from, strconv.Itoa(from))
			if err != nil {
				t.Fatal(err)
			}
			readings = append(readings, reading{w, from, filter})
		}
		w := watchFromNow(t, f, l.line, filter)
		readings = append(readings, reading{w, middle, filter})
	}
	l.add(some()...)
	for _, r := range readings {
		open := false
		for i, want := range l.marks(r.from, &r.filter) {
			if i%3 == 0 {
				ask(t, r.w)
			}
			ev := next(t, r.w)
			for ; ev.GetBookmark() != nil; ev = next(t, r.w) {
				if open || ev.GetMore() {
					t.Fatalf("from %d, after %d events: a bookmark within a commit", r.from, i)
				}
			}
			got := ev.GetUpsert().GetResource().GetVersion() + " " + strconv.FormatBool(ev.GetMore())
			if got != want {
				t.Fatalf("from %d, event %d: got %s, want %s", r.from, i, got, want)
			}
			open = ev.GetMore()
		}
		ask(t, r.w)
		wantBookmark(t, r.w, strconv.Itoa(len(l.events)))
	}
}

// A bookmark that becomes due inside a commit comes after the commit.
func TestNoBookmarkWithinACommit(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		l := &ledger{proving: newProving(), batch: 100}
		f := New(l, Options[int]{})
		defer f.Close()
		w := watchFromNow(t, f, l.line, quietOnly)
		release := l.hold()
		l.add([]string{"loud"})
		ask(t, w)
		<-w.(bookmarker[int]).proofs[0].readyCh
		l.add([]string{"quiet", "loud", "quiet", "loud"})
		release()
		for _, more := range []bool{true, false} {
			if ev := next(t, w); ev.GetUpsert() == nil || ev.GetMore() != more {
				t.Fatalf("got %v, expected an event with more %v", ev, more)
			}
		}
		wantBookmark(t, w, "4")
	})
}
