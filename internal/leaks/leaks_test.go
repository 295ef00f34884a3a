package leaks

import (
	"errors"
	"testing"
	"time"
)

// deep waits for the end of a channel in a stack of more than 100 frames.
func deep(frames int, end <-chan struct{}) {
	if frames > 0 {
		deep(frames-1, end)
		return
	}
	<-end
}

// A deep stack is waited for, and other goroutines are found beside it.
func TestDeepStack(t *testing.T) {
	current, err := IgnoreCurrent()
	if err != nil {
		t.Fatal(err)
	}
	end, ended, left := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		deep(200, end)
		close(ended)
	}()
	time.AfterFunc(50*time.Millisecond, func() { close(end) })
	if err := Find(current); err != nil {
		t.Errorf("a goroutine ended, and Find returned %v", err)
	}
	<-ended
	go func() { <-left }()
	if err := Find(current); err == nil || errors.Is(err, errDeep) {
		t.Errorf("a goroutine is left, and Find returned %v", err)
	}
	close(left)
}
