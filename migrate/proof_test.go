package migrate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// slowWatch reads history in slow pages.
type slowWatch struct {
	storage.Watch
	storage.Bookmarker
	size  int                         // events of a page
	page  func(n int) <-chan struct{} // closed when the page has been read
	await <-chan struct{}
	given int
}

func (w *slowWatch) Next(ctx context.Context) (*resourcepb.WatchEvent, error) {
	if w.await == nil {
		w.await = w.page(w.given / w.size)
	}
	select {
	case <-w.await:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	ev, err := w.Watch.Next(ctx)
	if err == nil {
		if w.given++; w.given%w.size == 0 {
			w.await = nil
		}
	}
	return ev, err
}

// slowly makes the watches of a store slow. Watches without bookmarks stay without them.
func slowly(b storage.Backend, size int, page func(n int) <-chan struct{}) *tapped {
	return &tapped{Backend: b, tap: newTap(), role: "from", watch: func(w storage.Watch) storage.Watch {
		marks, proves := w.(storage.Bookmarker)
		slow := &slowWatch{Watch: w, Bookmarker: marks, size: size, page: page}
		if !proves {
			return struct{ storage.Watch }{slow}
		}
		return slow
	}}
}

// taking returns a page that takes this long.
func taking(d time.Duration) <-chan struct{} {
	over := make(chan struct{})
	time.AfterFunc(d, func() { close(over) })
	return over
}

// TestSlowHistoryIsNotTheEnd merges from a source whose pages of history take two seconds, and the first longer than any timeout.
// Resources that the source has deleted do not stay.
func TestSlowHistoryIsNotTheEnd(t *testing.T) {
	t.Parallel()
	plain, to := fixture.Open(t, "mem://"), fixture.Open(t, "mem://")
	from := slowly(plain, 5, func(n int) <-chan struct{} {
		if n == 0 {
			return taking(6 * time.Second)
		}
		return taking(2 * time.Second)
	})
	var all []*resourcepb.Resource
	for i := range 12 {
		all = append(all, small(fmt.Sprintf("thing-%d", i), "1"))
	}
	fill(t, plain, all)
	fill(t, to, []*resourcepb.Resource{small("own", "1")})
	cutover := make(chan struct{}, 1)
	var once sync.Once
	o := quick(Options{Live: true, Into: Merge, Cutover: cutover, Progress: func(p Progress) {
		if p.Phase != Following {
			return
		}
		once.Do(func() {
			for _, res := range all[:8] {
				fixture.Remove(t, plain, fixture.Stored(t, plain, res.Id))
			}
			cutover <- struct{}{}
		})
	}})
	r, err := Run(limited(t), from, to, o)
	if err != nil {
		t.Fatal(err)
	}
	want := contents(t, plain)
	want["own"] = "1"
	if got := contents(t, to); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the target has %v, expected %v", got, want)
	}
	t.Logf("closed for %v", r.FenceTime)
}

// TestLagIsProven makes a source's watch silent. The lag of the target is then unknown, and the source stays open.
func TestLagIsProven(t *testing.T) {
	t.Parallel()
	plain, to := fixture.Open(t, "mem://"), fixture.Open(t, "mem://")
	release := make(chan struct{})
	from := slowly(plain, 5, func(int) <-chan struct{} { return release })
	fill(t, plain, zoo(20))
	const lag = 300 * time.Millisecond
	slow := &tapped{Backend: to, tap: newTap(), role: "to"}
	var copied sync.Once
	slow.tap.at = func(_ int, before bool, what string) error {
		if before && (what == "to commit" || what == "to write") {
			copied.Do(func() { <-taking(2 * lag) }) // the copy itself proves too little
		}
		return nil
	}
	reports := make(chan Progress, 1000)
	over := make(chan error, 1)
	go func() {
		_, err := Run(limited(t), from, slow, quick(Options{Live: true, CutoverLag: lag, Progress: func(p Progress) { reports <- p }}))
		over <- err
	}()
	for seen := 0; seen < 4; {
		select {
		case p := <-reports:
			if p.Phase != Following {
				continue
			}
			seen++ // about a second each
			if p.Lag >= 0 && p.Lag < lag {
				t.Errorf("the lag is reported as %v without a proof", p.Lag)
			}
		case err := <-over:
			t.Fatalf("it did not wait for a proof: %v", err)
		}
	}
	if closed := fenceOf(t, plain); closed != "" {
		t.Error("the source is closed without a proof of the lag")
	}
	write(t, plain, small("late", "1"))
	close(release)
	if err := <-over; err != nil {
		t.Fatal(err)
	}
	wantEqual(t, plain, to)
}

// TestWithoutBookmarks moves from a source whose watches have no bookmarks, under load, and return only a few changes. The
// comparison of both sides proves the end.
func TestWithoutBookmarks(t *testing.T) {
	t.Parallel()
	for _, lag := range []time.Duration{0, time.Minute} {
		t.Run(fmt.Sprint("lag=", lag), func(t *testing.T) {
			t.Parallel()
			plain, to := fixture.Open(t, "mem://"), fixture.Open(t, "mem://")
			shown, never := make(chan struct{}), make(chan struct{})
			close(shown)
			from := slowly(plain, 5, func(n int) <-chan struct{} {
				if n == 0 {
					return shown
				}
				return never
			})
			from.plain = true
			fill(t, plain, zoo(200))
			load := startWriters(t, 2, func() storage.Backend { return plain })
			load.awaitWrites(t, 20)
			o := quick(Options{Live: true, CutoverLag: lag, PageSize: 20})
			if lag == 0 {
				cutover := make(chan struct{}, 1)
				var once sync.Once
				o.Cutover = cutover
				o.Progress = func(p Progress) {
					if p.Phase == Following {
						once.Do(func() { cutover <- struct{}{} })
					}
				}
			}
			if _, err := Run(limited(t), from, to, o); err != nil {
				t.Fatal(err)
			}
			load.check(t, to)
			wantEqual(t, plain, to)
		})
	}
	t.Run("a lag that a comparison cannot prove", func(t *testing.T) {
		t.Parallel()
		plain, to := fixture.Open(t, "mem://"), fixture.Open(t, "mem://")
		from := &tapped{Backend: plain, tap: newTap(), role: "from", plain: true}
		fill(t, plain, zoo(20))
		r, err := Run(limited(t), from, to, quick(Options{Live: true, CutoverLag: time.Nanosecond}))
		if !errors.Is(err, ErrUnsupported) || r.Next != Retry || r.SourceClosed || fenceOf(t, plain) != "" {
			t.Errorf("got %v, next %q, closed %v", err, r.Next, r.SourceClosed)
		}
		if _, err := Run(limited(t), from, to, quick(Options{Live: true, CutoverLag: time.Hour})); err != nil {
			t.Error(err)
		}
	})
	for _, into := range []Into{Merge, Overwrite} {
		t.Run(fmt.Sprint("not offered, into=", int(into)), func(t *testing.T) {
			t.Parallel()
			plain, to := fixture.Open(t, "mem://"), fixture.Open(t, "mem://")
			from := &tapped{Backend: plain, tap: newTap(), role: "from", plain: true}
			fill(t, plain, zoo(20))
			r, err := Run(limited(t), from, to, quick(Options{Live: true, Into: into, CutoverLag: time.Hour}))
			if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "storage.Bookmarker") || r.HasJournal || r.Next != Nothing {
				t.Errorf("got %v, begun %v, next %q", err, r.HasJournal, r.Next)
			}
			if got := contents(t, to); len(got) != 0 || fenceOf(t, plain) != "" {
				t.Errorf("the target has %d resources, the fence is %q", len(got), fenceOf(t, plain))
			}
			if _, err := Run(limited(t), from, to, quick(Options{Into: into})); err != nil {
				t.Errorf("without following: %v", err)
			}
		})
	}
}

// TestFailedCutoverOpensTheSource makes cutovers fail for several reasons. Each leaves the source open, and returns the next step.
func TestFailedCutoverOpensTheSource(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		into    Into
		disturb func(t *testing.T, from, to *tapped, o *Options, calm *atomic.Bool)
		err     error
		next    Next
	}{
		{
			name: "another program opens the target and writes to it", err: ErrDiffers, next: Retry,
			disturb: func(t *testing.T, from, to *tapped, _ *Options, calm *atomic.Bool) {
				n := 0
				to.tap.at = func(_ int, before bool, what string) error {
					// The guard is taken before each comparison.
					if !before && what == "to note mover" && fenceOf(t, from.Backend) != "" && !calm.Load() {
						n++
						if err := Unfence(limited(t), to.Backend); err != nil {
							t.Error(err)
						}
						write(t, to.Backend, small("meddled", fmt.Sprint(n)))
					}
					return nil
				}
			},
		},
		{
			name: "history is deleted while draining", into: Merge, err: storage.ErrCompacted, next: AbortFirst,
			disturb: func(t *testing.T, from, _ *tapped, _ *Options, calm *atomic.Bool) {
				from.watch = func(w storage.Watch) storage.Watch {
					marks, _ := w.(storage.Bookmarker)
					return &oblivious{w, marks, func() bool { return fenceOf(t, from.Backend) != "" && !calm.Load() }}
				}
			},
		},
		{
			name: "the watch becomes silent", into: Merge, err: storage.ErrInconsistent, next: Retry,
			disturb: func(t *testing.T, from, _ *tapped, o *Options, calm *atomic.Bool) {
				o.Timeout = 500 * time.Millisecond
				never, ever := make(chan struct{}), make(chan struct{})
				close(ever)
				from.watch = func(w storage.Watch) storage.Watch {
					marks, _ := w.(storage.Bookmarker)
					return &slowWatch{Watch: w, Bookmarker: marks, size: 5, page: func(int) <-chan struct{} {
						if fenceOf(t, from.Backend) != "" && !calm.Load() {
							return never
						}
						return ever
					}}
				}
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			from := &tapped{Backend: fixture.Open(t, "mem://"), tap: newTap(), role: "from"}
			to := &tapped{Backend: fixture.Open(t, "mem://"), tap: newTap(), role: "to"}
			fill(t, from.Backend, zoo(20))
			o := quick(Options{Live: true, Into: c.into, CutoverLag: time.Hour})
			var calm atomic.Bool
			c.disturb(t, from, to, o, &calm)
			r, err := Run(limited(t), from, to, o)
			if !errors.Is(err, c.err) || r.Next != c.next || r.SourceClosed || r.Phase != Following {
				t.Fatalf("got %v in phase %s, next %q, closed %v: expected %v, next %q", err, r.Phase, r.Next, r.SourceClosed, c.err, c.next)
			}
			write(t, from.Backend, small("open", "1"))
			calm.Store(true)
			o.Timeout = 0 // the default
			if c.next == AbortFirst {
				if err := Abort(limited(t), from.Backend, to.Backend); err != nil {
					t.Fatal(err)
				}
				write(t, from.Backend, small("open", "2"))
			}
			if _, err := Run(limited(t), from, to, o); err != nil {
				t.Fatal(err)
			}
			report, err := Verify(limited(t), from.Backend, to.Backend, nil)
			if err != nil || report.Missing+report.Different > 0 {
				t.Errorf("%v, %v", report, err)
			}
		})
	}
}

// oblivious is a watch whose history may be deleted.
type oblivious struct {
	storage.Watch
	storage.Bookmarker
	gone func() bool
}

func (w *oblivious) Next(ctx context.Context) (*resourcepb.WatchEvent, error) {
	if w.gone() {
		return nil, fmt.Errorf("%w: %w", storage.ErrWatchClosed, storage.ErrCompacted)
	}
	return w.Watch.Next(ctx)
}
