package batch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

type request struct {
	key  string
	size int
}

// server runs batches when the test permits.
type server struct {
	began chan []*Call[request, string]
	let   chan struct{}
}

func newServer() *server {
	return &server{began: make(chan []*Call[request, string]), let: make(chan struct{})}
}

func (s *server) do(_ context.Context, calls []*Call[request, string]) {
	s.began <- calls
	<-s.let
	for _, c := range calls {
		c.Done("done "+c.Request.key, nil)
	}
}

func waitFor(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); {
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting for %s", what)
		}
		<-time.After(100 * time.Microsecond)
	}
}

func (b *Batcher[Q, R]) queued() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.queue)
}

// queue enqueues the requests in order behind a request in flight, and returns the group that Close must wait for.
func queue(t *testing.T, s *server, b *Batcher[request, string], requests ...request) *sync.WaitGroup {
	t.Helper()
	var callers sync.WaitGroup
	call := func(r request) {
		callers.Go(func() {
			got, err := b.Do(context.Background(), r)
			if err != nil || got != "done "+r.key {
				t.Errorf("%v: got %q, %v", r, got, err)
			}
		})
	}
	call(request{key: "first"})
	<-s.began
	for i, r := range requests {
		call(r)
		waitFor(t, "the call to be queued", func() bool { return b.queued() == i+1 })
	}
	return &callers
}

func names(calls []*Call[request, string]) (names []string) {
	for _, c := range calls {
		names = append(names, c.Request.key)
	}
	return names
}

func TestBatches(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		opts     Options[request]
		requests []request
		want     [][]string
	}{
		{"all that wait leave together", Options[request]{},
			[]request{{key: "a"}, {key: "b"}, {key: "c"}}, [][]string{{"a", "b", "c"}}},
		{"bounded by number", Options[request]{MaxCalls: 2},
			[]request{{key: "a"}, {key: "b"}, {key: "c"}}, [][]string{{"a", "b"}, {"c"}}},
		{"bounded by bytes, a large one alone", Options[request]{MaxBytes: 10, Size: func(r request) int { return r.size }},
			[]request{{"a", 6}, {"b", 4}, {"c", 1}, {"d", 50}, {"e", 1}}, [][]string{{"a", "b"}, {"c"}, {"d"}, {"e"}}},
		{"one key once", Options[request]{Key: func(r request) string { return r.key }},
			[]request{{key: "a"}, {key: "a"}, {key: "b"}, {key: "a"}}, [][]string{{"a", "b"}, {"a"}, {"a"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := newServer()
			b := New(tc.opts, s.do)
			callers := queue(t, s, b, tc.requests...)
			s.let <- struct{}{}
			for _, want := range tc.want {
				if got := names(<-s.began); fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("got %v, expected %v", got, want)
				}
				s.let <- struct{}{}
			}
			callers.Wait()
			b.Close()
		})
	}
}

func TestCallerLeavesBeforeAndAfterSending(t *testing.T) {
	t.Parallel()
	s := newServer()
	b := New(Options[request]{}, s.do)
	ctx, cancel := context.WithCancel(context.Background())
	sent := make(chan error, 1)
	go func() {
		_, err := b.Do(ctx, request{key: "sent"})
		sent <- err
	}()
	flying := <-s.began
	waiting := make(chan error, 1)
	go func() {
		_, err := b.Do(ctx, request{key: "waiting"})
		waiting <- err
	}()
	waitFor(t, "the second call to be queued", func() bool { return b.queued() == 1 })
	cancel()
	if err := <-sent; !errors.Is(err, storage.ErrInconsistent) || !errors.Is(err, context.Canceled) {
		t.Errorf("sent: got %v", err)
	}
	if err := <-waiting; errors.Is(err, storage.ErrInconsistent) || !errors.Is(err, context.Canceled) {
		t.Errorf("waiting: got %v", err)
	}
	if len(flying) != 1 || flying[0].flight.waiting.Load() != 0 {
		t.Error("the batch still counts a caller that has left")
	}
	s.let <- struct{}{}
	later := make(chan error, 1)
	go func() {
		_, err := b.Do(context.Background(), request{key: "later"})
		later <- err
	}()
	<-s.began
	s.let <- struct{}{}
	if err := <-later; err != nil {
		t.Errorf("later: got %v", err)
	}
	b.Close()
	if _, err := b.Do(context.Background(), request{}); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("closed: got %v", err)
	}
}

func TestContextEndsWithLastCaller(t *testing.T) {
	t.Parallel()
	began := make(chan struct{})
	b := New(Options[request]{}, func(ctx context.Context, calls []*Call[request, string]) {
		close(began)
		<-ctx.Done()
		for _, c := range calls {
			c.Done("", ctx.Err())
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-began; cancel() }()
	if _, err := b.Do(ctx, request{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	b.Close()
}

// TestContextEndsWithLastCallerWithoutResult gives one member of a batch its result early. When the caller of the other member leaves, nobody
// waits for the batch any more.
func TestContextEndsWithLastCallerWithoutResult(t *testing.T) {
	t.Parallel()
	for _, early := range []bool{true, false} { // before the other caller leaves, or afterwards
		s := newServer()
		entered, left := make(chan struct{}), make(chan struct{})
		ended := make(chan bool, 1)
		b := New(Options[request]{}, func(ctx context.Context, calls []*Call[request, string]) {
			if len(calls) == 1 {
				s.do(ctx, calls)
				return
			}
			if !early {
				close(entered)
				<-left
			}
			calls[0].Done("", nil)
			if early {
				close(entered)
			}
			select {
			case <-ctx.Done():
				ended <- true
			case <-time.After(time.Minute):
				ended <- false
			}
		})
		var callers sync.WaitGroup
		callers.Go(func() { _, _ = b.Do(context.Background(), request{key: "first"}) })
		<-s.began
		callers.Go(func() {
			if _, err := b.Do(context.Background(), request{key: "answered"}); err != nil {
				t.Error(err)
			}
		})
		waitFor(t, "the call to be queued", func() bool { return b.queued() == 1 })
		ctx, cancel := context.WithCancel(context.Background())
		callers.Go(func() {
			defer close(left)
			if _, err := b.Do(ctx, request{key: "leaves"}); !errors.Is(err, storage.ErrInconsistent) || !errors.Is(err, context.Canceled) {
				t.Errorf("the caller that leaves: %v", err)
			}
		})
		waitFor(t, "the call to be queued", func() bool { return b.queued() == 2 })
		s.let <- struct{}{}
		<-entered
		cancel()
		if !<-ended {
			t.Errorf("answered first: %t: the context of a batch that nobody waits for goes on", early)
		}
		callers.Wait()
		b.Close()
	}
}

func TestMissingResultIsError(t *testing.T) {
	t.Parallel()
	b := New(Options[request]{}, func(context.Context, []*Call[request, string]) {})
	defer b.Close()
	if _, err := b.Do(context.Background(), request{}); err == nil {
		t.Error("expected an error")
	}
}

func TestRequeue(t *testing.T) {
	t.Parallel()
	alone := make(chan *Call[request, string], 1)
	b := New(Options[request]{}, func(_ context.Context, calls []*Call[request, string]) {
		if calls[0].Request.key == "second" {
			calls[0].Done("second", nil)
			return
		}
		calls[0].Requeue()
		alone <- calls[0]
	})
	var first sync.WaitGroup
	first.Go(func() {
		if got, err := b.Do(context.Background(), request{key: "first"}); got != "alone" || err != nil {
			t.Errorf("the requeued member: %q, %v", got, err)
		}
	})
	member := <-alone
	if got, err := b.Do(context.Background(), request{key: "second"}); got != "second" || err != nil {
		t.Errorf("the next batch: %q, %v", got, err)
	}
	b.Close()
	member.Done("alone", nil)
	first.Wait()
}

func TestEveryCallRunsOnce(t *testing.T) {
	t.Parallel()
	for _, direct := range []bool{false, true} {
		t.Run(fmt.Sprint("direct ", direct), func(t *testing.T) {
			t.Parallel()
			everyCallIsCarriedOutOnce(t, direct)
		})
	}
}

func everyCallIsCarriedOutOnce(t *testing.T, direct bool) {
	t.Helper()
	var mu sync.Mutex
	seen := map[string]int{}
	b := New(Options[request]{Workers: 2, WorkerAt: 4, MaxCalls: 8, Direct: direct}, func(_ context.Context, calls []*Call[request, string]) {
		for _, c := range calls {
			mu.Lock()
			seen[c.Request.key]++
			mu.Unlock()
			c.Done(c.Request.key, nil)
		}
	})
	var callers sync.WaitGroup
	for i := range 64 {
		callers.Go(func() {
			for j := range 50 {
				k := fmt.Sprint(i, "/", j)
				if got, err := b.Do(context.Background(), request{key: k}); err != nil || got != k {
					t.Errorf("got %q, %v", got, err)
				}
			}
		})
	}
	callers.Wait()
	b.Close()
	for k, n := range seen {
		if n != 1 {
			t.Errorf("%s ran %d times", k, n)
		}
	}
	if len(seen) != 64*50 {
		t.Errorf("%d calls ran, expected %d", len(seen), 64*50)
	}
}

// A caller whose deadline expires gets its own context's error, even if the abandoned batch fails at the same moment.
func TestExpiredCallerGetsDeadlineError(t *testing.T) {
	t.Parallel()
	b := New(Options[int]{}, func(ctx context.Context, calls []*Call[int, int]) {
		<-ctx.Done()
		calls[0].Done(0, ctx.Err())
	})
	defer b.Close()
	for range 300 {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Microsecond)
		_, err := b.Do(ctx, 1)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
			t.Fatalf("got %v, expected DeadlineExceeded", err)
		}
	}
}
