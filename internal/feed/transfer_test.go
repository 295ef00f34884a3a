package feed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
)

// lagging is a line whose first runs publish nothing and end like a source that has fallen behind the retained history.
type lagging struct {
	*line
	ends chan struct{} // each value ends a run
}

func (l *lagging) Run(ctx context.Context, ready func(int), publish func([]*driver.Event[int], int)) error {
	l.mu.Lock()
	at := len(l.events)
	l.mu.Unlock()
	select {
	case _, more := <-l.ends:
		if !more {
			return l.line.Run(ctx, ready, publish)
		}
	default:
	}
	ready(at)
	select {
	case <-l.ends:
		return fmt.Errorf("%w: the source has fallen behind", storage.ErrCompacted)
	case <-ctx.Done():
		return nil
	}
}

// A watch with a newer position than its run continues in the next run, without a gap or a repeat.
func TestRunFallsBehindItsWatches(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		l := &lagging{newLine(), make(chan struct{})}
		f := New(l, Options[int]{})
		defer f.Close()
		w := watchFromNow(t, f, l.line, all)
		defer w.Close()
		other := watchFromNow(t, f, l.line, key.Filter{Group: "g", Kind: "b", Partition: "*", Namespace: "*"})
		defer other.Close()
		for range 3 {
			n := l.append("a")
			l.ends <- struct{}{}
			wantVersion(t, w, n)
		}
		n := l.append("b")
		close(l.ends)
		wantVersion(t, w, n)
		wantVersion(t, other, n)
		n = l.append("b")
		wantVersion(t, w, n)
		wantVersion(t, other, n)
	})
}

// A watch whose own position is discarded ends.
func TestRunFallsBehindWithItsWatch(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		l := &lagging{newLine(), make(chan struct{})}
		f := New(l, Options[int]{})
		defer f.Close()
		w := watchFromNow(t, f, l.line, all)
		l.append("a")
		l.mu.Lock()
		l.oldest = 1
		l.mu.Unlock()
		l.ends <- struct{}{}
		if _, err := w.Next(t.Context()); !errors.Is(err, storage.ErrWatchClosed) || !errors.Is(err, storage.ErrCompacted) {
			t.Errorf("got %v", err)
		}
	})
}

// A watch that is closed while its run ends frees its place in its current run and in no other.
func TestClosedWhileItsRunEnds(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for range 50 {
			l := &lagging{newLine(), make(chan struct{})}
			f := New(l, Options[int]{})
			w := watchFromNow(t, f, l.line, all)
			r := f.current
			l.ends <- struct{}{}
			<-r.endCh
			done := make(chan struct{})
			go func() { defer close(done); w.Close() }()
			_, err := w.Next(t.Context())
			if !errors.Is(err, storage.ErrWatchClosed) {
				t.Fatalf("got %v", err)
			}
			<-done
			f.mu.Lock()
			current := f.current
			f.mu.Unlock()
			for _, run := range []*run[int]{r, current} {
				if run == nil {
					continue
				}
				run.mu.Lock()
				if run.watches != 0 || len(run.followers) != 0 {
					t.Errorf("%d watches and %d followers remain, expected none", run.watches, len(run.followers))
				}
				run.mu.Unlock()
			}
			f.Close()
		}
	})
}

// lateDone is a context whose Done returns when all other goroutines of the bubble wait or have ended.
type lateDone struct{ context.Context }

func (c lateDone) Done() <-chan struct{} {
	synctest.Wait()
	return c.Context.Done()
}

// A run that becomes ready and ends while Start is suspended has ended normally, and a watch can read what was before its end. The error would
// send a reader to the next store without the changes of this one.
func TestRunEndsWhileStartIsSuspended(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		l := newLine()
		l.breakDown(&storage.MovedError{Target: "there"})
		f := New(l, Options[int]{})
		defer f.Close()
		for range 64 { // a select of two closed channels takes each of them about as often
			m, err := f.Start(lateDone{t.Context()})
			if err != nil {
				t.Fatalf("Start: %v", err)
			}
			m.Release()
		}
	})
}

// signaled is a context that reports when a select looks at its end.
type signaled struct {
	context.Context
	reached chan<- struct{}
}

func (c signaled) Done() <-chan struct{} {
	select {
	case c.reached <- struct{}{}:
	default:
	}
	return c.Context.Done()
}

// A run that becomes ready and ends while Start returns the error of its context was ready, so its end is no error of Start.
func TestRunEndsWhileStartIsCanceled(t *testing.T) {
	t.Parallel()
	f := New(newLine(), Options[int]{})
	r := &run[int]{feed: f, ready: make(chan struct{}), endCh: make(chan struct{})}
	f.current = r
	ctx, cancel := context.WithCancel(t.Context())
	reached, started := make(chan struct{}, 1), make(chan error)
	go func() {
		_, err := f.Start(signaled{ctx, reached})
		started <- err
	}()
	<-reached
	r.mu.Lock()
	cancel()
	for !waitsForRelease("TestRunEndsWhileStartIsCanceled") {
		runtime.Gosched()
	}
	close(r.ready)
	r.err = &storage.MovedError{Target: "there"}
	close(r.endCh)
	r.mu.Unlock()
	if err := <-started; errors.Is(err, storage.ErrMoved) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, expected the context's error", err)
	}
}

// waitsForRelease reports whether a goroutine of a test is in release.
func waitsForRelease(test string) bool {
	stacks := make([]byte, 1<<20)
	n := runtime.Stack(stacks, true)
	for ; n == len(stacks); n = runtime.Stack(stacks, true) {
		stacks = make([]byte, 2*len(stacks))
	}
	return slices.ContainsFunc(bytes.Split(stacks[:n], []byte("\n\n")), func(stack []byte) bool {
		return bytes.Contains(stack, []byte(test)) && bytes.Contains(stack, []byte("feed.(*run[...]).release("))
	})
}

// A pause of the reader between two failures is no outage.
func TestPauseIsNoOutage(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for _, pause := range []time.Duration{30 * time.Second, time.Hour} {
			f := New(newLine(), Options[int]{Outage: 10 * time.Second})
			defer f.Close()
			ended, failing, failures := make(chan struct{}), &outage{}, 0
			close(ended)
			try := func(context.Context) error {
				if failures++; failures < 3 {
					return errors.New("stumbled")
				}
				return nil
			}
			if err := f.persist(t.Context(), ended, failing, try); !errors.Is(err, errRunEnded) {
				t.Fatalf("got %v, expected errRunEnded", err)
			}
			<-time.After(pause)
			if err := f.persist(t.Context(), nil, failing, try); err != nil {
				t.Errorf("two failures with %v between them: %v", pause, err)
			}
		}
	})
}

// The database of a moved store fails, while its runs begin and end at once. A watch that has not read all of its history ends after the outage,
// even if its reader pauses for longer than that between two calls.
func TestOutageOfMovedStore(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for _, pause := range []time.Duration{0, 2 * time.Minute} {
			l := newLine()
			l.append("a")
			l.failures = 1 << 30
			l.breakDown(&storage.MovedError{Target: "there"})
			f := New(l, Options[int]{Outage: 10 * time.Second})
			defer f.Close()
			w, err := f.Resume(t.Context(), all, 0, "0")
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			for range 60 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				_, err = w.Next(ctx)
				cancel()
				if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, storage.ErrWatchClosed) {
					break
				}
				<-time.After(pause)
			}
			if !errors.Is(err, storage.ErrWatchClosed) || errors.Is(err, storage.ErrMoved) {
				t.Errorf("pause %v: got %v, expected ErrWatchClosed with the failure of the database", pause, err)
			}
		}
	})
}

// Close ends a Next that waits for the next run.
func TestCloseBeforeSlowRun(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := &slowToStart{proving: newProving(), ends: make(chan struct{})}
		f := New(s, Options[int]{})
		defer f.Close()
		w := watchFromNow(t, f, s.line, all)
		s.ends <- struct{}{}
		ended := make(chan error, 1)
		go func() {
			_, err := w.Next(context.WithoutCancel(t.Context()))
			ended <- err
		}()
		<-time.After(time.Minute)
		w.Close()
		synctest.Wait()
		select {
		case err := <-ended:
			if !errors.Is(err, storage.ErrWatchClosed) {
				t.Errorf("got %v, expected ErrWatchClosed", err)
			}
		default:
			t.Error("Next continues after Close")
		}
	})
}

// The run has ended because the store has moved, after it published the last change. A watch that is still reading the history before it
// returns all of it, even if a read fails, and only then the end.
func TestMovedStoreWithAWatchInHistory(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		l := newLine()
		for range 3 {
			l.append("a")
		}
		l.failures = 2
		l.breakDown(&storage.MovedError{Target: "there"})
		f := New(l, Options[int]{})
		defer f.Close()
		w, err := f.Resume(t.Context(), all, 1, "1")
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		<-w.(*watch[int]).run.endCh
		wantVersion(t, w, 2)
		wantVersion(t, w, 3)
		if _, err := w.Next(t.Context()); !errors.Is(err, storage.ErrWatchClosed) || !errors.Is(err, storage.ErrMoved) {
			t.Errorf("got %v, expected ErrMoved", err)
		}
	})
}

// slowToStart is a proving line whose first run ends at a value of ends, like a source that has fallen behind. Its second run begins at the next one.
type slowToStart struct {
	*proving
	runs int
	ends chan struct{}
}

func (s *slowToStart) Run(ctx context.Context, ready func(int), publish func([]*driver.Event[int], int)) error {
	if s.runs++; s.runs > 1 {
		select {
		case <-s.ends:
			return s.line.Run(ctx, ready, publish)
		case <-ctx.Done():
			return nil
		}
	}
	ready(0)
	select {
	case <-s.ends:
		return fmt.Errorf("%w: the source has fallen behind", storage.ErrCompacted)
	case <-ctx.Done():
		return nil
	}
}

// A watch whose next run begins slowly waits for it, although single calls of Next end earlier. Its requests of bookmarks are answered then.
func TestMoveToSlowRun(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := &slowToStart{proving: newProving(), ends: make(chan struct{})}
		s.answer, s.asked = make(chan struct{}), make(chan struct{}, 10)
		f := New(s, Options[int]{})
		defer f.Close()
		w := watchFromNow(t, f, s.line, all)
		defer w.Close()
		for range 3 {
			ask(t, w)
		}
		s.ends <- struct{}{}
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if _, err := w.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("got %v, expected the context's error", err)
			}
			cancel()
		}
		s.ends <- struct{}{}
		go func() { s.answer <- struct{}{} }()
		if request := wantBookmark(t, w, "0"); request != 3 {
			t.Errorf("the bookmark answers request %d, expected 3", request)
		}
		wantVersion(t, w, s.append("a"))
	})
}
