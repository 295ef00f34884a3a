package backend

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-dev/storage/driver"
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

// forgetful is a driver that knows nothing of the past.
type forgetful struct{ driver.Historian[uint64] }

func (forgetful) Before(ctx context.Context, _ []*driver.Event[uint64]) ([]*driver.Version, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// A watch that looks up what was stored before its changes does not wait for ever for one answer: drivers try again for as long as
// their context lasts, and only what comes back counts as an outage.
func TestLookingUpThePastEnds(t *testing.T) {
	t.Parallel()
	b := &Backend[uint64]{historian: forgetful{}, opts: Options[uint64]{Timeout: time.Millisecond}}
	if _, err := b.before(t.Context(), nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}
