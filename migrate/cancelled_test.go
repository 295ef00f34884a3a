package migrate

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// mute is a target that does not confirm notes while it is silent.
type mute struct {
	*tapped
	silent atomic.Bool
	tried  chan struct{}
}

func (m *mute) As(target any) bool {
	ok := m.tapped.As(target)
	if p, is := target.(*driver.Mover); is {
		*p = muteMover{*p, m}
	}
	return ok
}

type muteMover struct {
	driver.Mover
	m *mute
}

func (m muteMover) WriteNote(ctx context.Context, name string, value []byte, revision string) (string, error) {
	if m.m.silent.Load() {
		select {
		case m.m.tried <- struct{}{}:
		default:
		}
		return "", fmt.Errorf("%w: no answer", storage.ErrInconsistent)
	}
	return m.Mover.WriteNote(ctx, name, value, revision)
}

// A migration that is cancelled while it records its position before the cutover ends soon, although the target does not answer.
func TestCancelledBeforeCutover(t *testing.T) {
	t.Parallel()
	from := fixture.Open(t, "mem://")
	to := &mute{tapped: &tapped{Backend: fixture.Open(t, "mem://"), tap: newTap(), role: "to"}, tried: make(chan struct{}, 1)}
	write(t, from, small("a", "1"))
	ctx, stop := context.WithCancel(limited(t))
	defer stop()
	cutover := make(chan struct{}, 1)
	over := make(chan error, 1)
	go func() {
		_, err := Run(ctx, from, to, quick(Options{Live: true, Cutover: cutover, Timeout: 10 * time.Minute, Progress: func(p Progress) {
			if p.Phase == Following && p.Lag >= 0 && !to.silent.Swap(true) {
				cutover <- struct{}{}
			}
		}}))
		over <- err
	}()
	for range 3 { // the first attempts may be of another record than the position at the cutover
		<-to.tried
	}
	stop()
	select {
	case err := <-over:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, expected context.Canceled", err)
		}
	case <-time.After(fixture.Timeout):
		t.Error("the migration has not ended after it was cancelled")
		<-over
	}
}
