package feed

import (
	"context"
	"errors"
	"testing"
)

func TestBackgroundCallContinuesWithoutWaiter(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var e BackgroundCall[int]
		calls := 0
		goOn := make(chan struct{})
		call := func() (int, error) {
			calls++
			<-goOn
			return calls, nil
		}
		impatient, cancel := context.WithCancel(t.Context())
		cancel()
		for range 3 {
			if n, err := e.Do(impatient, call); !errors.Is(err, context.Canceled) {
				t.Fatalf("%d, %v; want the context's error", n, err)
			}
		}
		close(goOn)
		for want := range 2 {
			if n, err := e.Do(t.Context(), call); n != want+1 || err != nil {
				t.Errorf("%d, %v; want the answer of call %d", n, err, want+1)
			}
		}
	})
}

func TestBackgroundCallFails(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var e BackgroundCall[string]
		failure := errors.New("failure")
		if _, err := e.Do(t.Context(), func() (string, error) { return "", failure }); !errors.Is(err, failure) {
			t.Errorf("%v, want the call's error", err)
		}
		if text, err := e.Do(t.Context(), func() (string, error) { return "fine", nil }); text != "fine" || err != nil {
			t.Errorf("after a failure: %q, %v", text, err)
		}
	})
}
