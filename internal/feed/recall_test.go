package feed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/codec"
)

// past returns the state stored before a change of a line: a resource that names the change, of the given size.
func past(ev *driver.Event[int], size int) *driver.Version {
	res := codec.Clone(ev.Resource)
	res.Version = fmt.Sprint("before ", ev.At)
	res.Data = &anypb.Any{Value: bytes.Repeat([]byte{'x'}, size)}
	return &driver.Version{Key: ev.Key.Bytes(), Resource: res}
}

// recalled follows n changes of a line and checks the previous state of each.
func recalled(t *testing.T, n int, before func(context.Context, []*driver.Event[int]) ([]*driver.Version, error)) {
	t.Helper()
	l := newLine()
	f := New(l, Options[int]{Before: before, Page: n})
	defer f.Close()
	for range n {
		l.append("a")
	}
	follower, err := f.Follow(t.Context(), all, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer follower.Close()
	for i := 1; i <= n; i++ {
		followed, err := follower.Next(t.Context())
		if err != nil {
			t.Fatalf("change %d: %v", i, err)
		}
		if got := followed.Before.Resource.GetVersion(); followed.Event.At != i || got != fmt.Sprint("before ", i) {
			t.Fatalf("change %d is %d with the previous state %q", i, followed.Event.At, got)
		}
	}
}

// A lookup of previous states is bounded, even if many small changes are on a page.
func TestRecallIsBounded(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		largest := 0
		recalled(t, 300, func(_ context.Context, events []*driver.Event[int]) (versions []*driver.Version, err error) {
			read := 0
			for _, ev := range events {
				size := 10
				if ev.At > 100 {
					size = 1 << 20
				}
				versions = append(versions, past(ev, size))
				read += size
			}
			if events[0].At > 100+maxPreviousReads+maxPreviousReads/2+maxPreviousReads/4+maxPreviousReads/8 {
				largest = max(largest, read)
			}
			if len(events) > maxPreviousReads {
				t.Errorf("one lookup covered %d changes", len(events))
			}
			return versions, nil
		})
		if most := 2 * driver.PageBytes; largest > most {
			t.Errorf("one lookup read %d bytes, expected at most %d", largest, most)
		}
	})
}

// Each change has its previous state, although the filter excludes most changes and the lookups cover a part of a page. A follower that has reached
// the end waits for further changes.
func TestRecallOfFilteredChanges(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := newProving()
		f := New(p, Options[int]{Before: func(_ context.Context, events []*driver.Event[int]) (versions []*driver.Version, err error) {
			for _, ev := range events {
				if ev.Key.Kind != "quiet" {
					t.Errorf("change %d, which the filter excludes, was looked up", ev.At)
				}
				versions = append(versions, past(ev, 1))
			}
			return versions, nil
		}})
		defer f.Close()
		const count = 3 * maxPreviousReads
		add := func() {
			p.append("loud")
			p.append("loud")
			p.append("quiet")
		}
		for range count {
			add()
		}
		follower, err := f.Follow(t.Context(), quietOnly, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer follower.Close()
		for i := range 2 * count {
			if i >= count {
				add()
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			followed, err := follower.Next(ctx)
			cancel()
			if err != nil {
				t.Fatal(err)
			}
			if at := 3*i + 3; followed.Event.At != at || followed.Before.Resource.GetVersion() != fmt.Sprint("before ", at) {
				t.Fatalf("got change %d with the previous state %v, expected change %d", followed.Event.At, followed.Before, at)
			}
		}
	})
}

// A lookup that takes too long over a slow link is repeated in smaller parts.
func TestRecallOverSlowLink(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		recalled(t, 20, func(_ context.Context, events []*driver.Event[int]) (versions []*driver.Version, err error) {
			if len(events) > 3 {
				return nil, errors.New("too slow")
			}
			for _, ev := range events {
				versions = append(versions, past(ev, 2<<20))
			}
			return versions, nil
		})
	})
}

// The lookup of a single change is repeated until it succeeds.
func TestFailedRecallIsRetried(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		failures := 3
		recalled(t, 1, func(_ context.Context, events []*driver.Event[int]) ([]*driver.Version, error) {
			if failures--; failures >= 0 {
				return nil, errors.New("broken")
			}
			return []*driver.Version{past(events[0], 1)}, nil
		})
	})
}

// A lookup of previous states continues without a waiter, so a Next with a shorter deadline eventually gets the result.
func TestRecallContinuesBetweenCalls(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		l := newLine()
		l.append("a")
		asked, answer := make(chan struct{}, 10), make(chan struct{})
		f := New(l, Options[int]{Before: func(ctx context.Context, events []*driver.Event[int]) ([]*driver.Version, error) {
			asked <- struct{}{}
			select {
			case <-answer:
				return []*driver.Version{past(events[0], 1)}, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}})
		defer f.Close()
		w, err := f.Follow(t.Context(), all, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		for range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { _, err := w.Next(ctx); done <- err }()
			if len(asked) == 0 {
				asked <- <-asked
			}
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Fatalf("got %v", err)
			}
		}
		close(answer)
		followed, err := w.Next(t.Context())
		if err != nil || followed.Before == nil {
			t.Fatalf("got %v and %v", followed, err)
		}
		if len(asked) != 1 {
			t.Errorf("Before was called %d times", len(asked))
		}
	})
}
