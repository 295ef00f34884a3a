package batch

import (
	"context"
	"errors"
	"testing"

	"github.com/ashlar-dev/storage"
)

type contextKey struct{}

// A call without another in flight runs under its caller's own context. Calls that arrive meanwhile wait and then run together.
func TestDirect(t *testing.T) {
	t.Parallel()
	s := newServer()
	var first context.Context
	b := New(Options[request]{Direct: true}, func(ctx context.Context, calls []*Call[request, string]) {
		if calls[0].Request.key == "own" {
			first = ctx
		}
		s.do(ctx, calls)
	})
	own := make(chan error, 1)
	go func() {
		_, err := b.Do(context.WithValue(context.Background(), contextKey{}, "mine"), request{key: "own"})
		own <- err
	}()
	if got := names(<-s.began); len(got) != 1 {
		t.Errorf("got %v", got)
	}
	rest := make(chan error, 2)
	for i, k := range []string{"a", "b"} {
		go func() {
			_, err := b.Do(context.Background(), request{key: k})
			rest <- err
		}()
		waitFor(t, "the call to be queued", func() bool { return b.queued() == i+1 })
	}
	s.let <- struct{}{}
	if err := <-own; err != nil {
		t.Error(err)
	}
	if first.Value(contextKey{}) != "mine" {
		t.Error("the first call did not run under its caller's context")
	}
	if got := names(<-s.began); len(got) != 2 {
		t.Errorf("got %v, expected both waiting calls", got)
	}
	s.let <- struct{}{}
	for range 2 {
		if err := <-rest; err != nil {
			t.Error(err)
		}
	}
	b.Close()
	if b.workers != 0 {
		t.Errorf("%d workers remain, expected none", b.workers)
	}
}

func TestDirectCallerLeaves(t *testing.T) {
	t.Parallel()
	began := make(chan struct{})
	b := New(Options[request]{Direct: true}, func(ctx context.Context, calls []*Call[request, string]) {
		close(began)
		<-ctx.Done()
		calls[0].Done("", errors.New("no answer"))
	})
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-began; cancel() }()
	if _, err := b.Do(ctx, request{}); err == nil || err.Error() != "no answer" {
		t.Errorf("got %v, expected the outcome of the call", err)
	}
	b.Close()
}

// A requeued call delays only its own caller.
func TestDirectRequeue(t *testing.T) {
	t.Parallel()
	alone := make(chan *Call[request, string], 1)
	b := New(Options[request]{Direct: true}, func(_ context.Context, calls []*Call[request, string]) {
		if calls[0].Request.key == "second" {
			calls[0].Done("second", nil)
			return
		}
		calls[0].Requeue()
		alone <- calls[0]
	})
	ctx, cancel := context.WithCancel(context.Background())
	left := make(chan error, 1)
	go func() {
		_, err := b.Do(ctx, request{key: "first"})
		left <- err
	}()
	member := <-alone
	if got, err := b.Do(context.Background(), request{key: "second"}); got != "second" || err != nil {
		t.Errorf("the next call: %q, %v", got, err)
	}
	cancel()
	if err := <-left; !errors.Is(err, storage.ErrInconsistent) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	b.Close()
	member.Done("too late", nil)
}
