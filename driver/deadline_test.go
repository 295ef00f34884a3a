package driver

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
		var d sharedDeadline
		began := time.Now()
		first := d.context(32 * time.Second)
		<-time.After(time.Second - 1)
		if d.context(32*time.Second) != first {
			t.Error("a call in the same moment got another context")
		}
		<-time.After(1)
		next := d.context(32 * time.Second)
		if next == first {
			t.Error("a call a 32nd of the time later got the same context")
		}
		<-first.Done()
		if after := time.Since(began); after != 33*time.Second || !errors.Is(first.Err(), context.DeadlineExceeded) {
			t.Errorf("ended after %v with %v", after, first.Err())
		}
		<-next.Done()
	})
}
