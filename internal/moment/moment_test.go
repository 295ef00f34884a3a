package moment

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestCallsOfOneMomentShareATimer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		parent, end := context.WithCancel(t.Context())
		defer end()
		var m Moment
		began := time.Now()
		first := m.Context(parent, 32*time.Second)
		<-time.After(time.Second - 1)
		if m.Context(parent, 32*time.Second) != first {
			t.Error("a call in the same moment got another context")
		}
		<-time.After(1)
		next := m.Context(parent, 32*time.Second)
		if next == first {
			t.Error("a call a 32nd of the time later got the same context")
		}
		<-first.Done()
		if after := time.Since(began); after != 33*time.Second || !errors.Is(first.Err(), context.DeadlineExceeded) {
			t.Errorf("ended after %v with %v", after, first.Err())
		}
		end()
		if next.Err() != context.Canceled {
			t.Errorf("the parent has ended, its child: %v", next.Err())
		}
	})
}

type key struct{}

func TestWithin(t *testing.T) {
	t.Parallel()
	const timeout = 32 * time.Second
	for _, tc := range []struct {
		name  string
		limit time.Duration // of the caller's own context; 0: none
		leave time.Duration // when the caller cancels it; 0: never
		close time.Duration // when the parent ends; 0: never
		end   time.Duration
		err   error
	}{
		{"as long as it may", 0, 0, 0, 33 * time.Second, context.DeadlineExceeded},
		{"the caller has more time", time.Hour, 0, 0, 33 * time.Second, context.DeadlineExceeded},
		{"the caller has less time", 2 * time.Second, 0, 0, 2 * time.Second, context.DeadlineExceeded},
		{"the caller leaves", 0, time.Second, 0, time.Second, context.Canceled},
		{"the caller leaves before its time is over", time.Hour, time.Second, 0, time.Second, context.Canceled},
		{"the parent ends", 0, 0, time.Second, time.Second, context.Canceled},
		{"the parent ends before the caller's time is over", 2 * time.Second, 0, time.Second, time.Second, context.Canceled},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, leave := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
				defer leave()
				if tc.limit > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tc.limit)
					defer cancel()
				}
				if tc.leave > 0 {
					time.AfterFunc(tc.leave, leave)
				}
				parent, end := context.WithCancel(t.Context())
				defer end()
				if tc.close > 0 {
					time.AfterFunc(tc.close, end)
				}
				var m Moment
				began := time.Now()
				within, cancel := m.Within(ctx, parent, timeout)
				defer cancel()
				if within.Value(key{}) != "value" {
					t.Error("the caller's values are missing")
				}
				<-within.Done()
				if after := time.Since(began); after != tc.end || within.Err() != tc.err {
					t.Errorf("ended after %v with %v, expected %v with %v", after, within.Err(), tc.end, tc.err)
				}
			})
		})
	}
}
