package backend

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-dev/storage/driver"
)

func TestSimultaneousCallsShareTimer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var d sharedDeadline
		began := time.Now()
		first := d.context(32 * time.Second)
		<-time.After(time.Second - 1)
		if d.context(32*time.Second) != first {
			t.Error("a call within a 32nd of the timeout got another context")
		}
		<-time.After(1)
		next := d.context(32 * time.Second)
		if next == first {
			t.Error("a call after a 32nd of the timeout got the same context")
		}
		<-first.Done()
		if after := time.Since(began); after != 33*time.Second || !errors.Is(first.Err(), context.DeadlineExceeded) {
			t.Errorf("ended after %v with %v", after, first.Err())
		}
		<-next.Done()
	})
}

// forgetful is a driver that never answers for history.
type forgetful struct{ driver.Historian[uint64] }

func (forgetful) Before(ctx context.Context, _ []*driver.Event[uint64]) ([]*driver.Version, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// A watch that reads previous states waits a bounded time for one answer, because a driver retries until its context ends and only
// a returned error counts as an outage.
func TestBeforeHasDeadline(t *testing.T) {
	t.Parallel()
	b := &Backend[uint64]{historian: forgetful{}, opts: Options[uint64]{Timeout: time.Millisecond}}
	if _, err := b.before(t.Context(), nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("before returned %v, expected DeadlineExceeded", err)
	}
}
