package serve

import (
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A caller can use the calls of a second at once, and is then told when to retry. It does not use up the calls of other callers, but all
// callers share the total. A refused call does not count.
func TestLimits(t *testing.T) {
	t.Parallel()
	l, now := newLimits(2, 5), time.Now()
	for _, step := range []struct {
		caller string
		after  time.Duration
		wait   time.Duration // 0 if the call is not refused
	}{
		{"a", 0, 0},
		{"a", 0, 0},
		{"a", 0, 500 * time.Millisecond},
		{"a", 0, 500 * time.Millisecond},
		{"b", 0, 0},
		{"b", 0, 0},
		{"", 0, 0},
		{"c", 0, 200 * time.Millisecond},
		{"c", 200 * time.Millisecond, 0},
		{"a", 300 * time.Millisecond, 0},
		{"a", 0, 500 * time.Millisecond},
	} {
		now = now.Add(step.after)
		err := l.take(step.caller, now)
		wait := time.Duration(0)
		for _, detail := range status.Convert(err).Details() {
			if info, ok := detail.(*errdetails.RetryInfo); ok {
				wait = info.GetRetryDelay().AsDuration()
			}
		}
		if (err != nil) != (step.wait > 0) || wait.Round(time.Millisecond) != step.wait || err != nil && status.Code(err) != codes.ResourceExhausted {
			t.Errorf("%+v: %v, retry after %v", step, err, wait)
		}
	}
	unlimited := newLimits(0, 0)
	for range 1000 {
		if err := unlimited.take("a", now); err != nil {
			t.Fatal(err)
		}
	}
}

// Calls that are refused at the same time use up nothing: a second later the calls of a second are permitted again.
func TestLimitsConcurrently(t *testing.T) {
	t.Parallel()
	l, now := newLimits(0, 1), time.Now()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 20_000 {
				_ = l.take("a", now) // all but one are refused
			}
		})
	}
	all.Wait()
	if err := l.take("a", now.Add(time.Second)); err != nil {
		t.Error(err)
	}
}
