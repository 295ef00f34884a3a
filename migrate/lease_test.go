package migrate

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// TestLeaseRunsOut suspends a tool between its read of the target and its write there, on a target without guards. Another tool
// takes over, and when the first one resumes, its heartbeat is too old to write.
func TestLeaseRunsOut(t *testing.T) {
	t.Parallel()
	from, to := fixture.Open(t, "mem://"), fixture.Open(t, "mem://")
	fill(t, from, []*resourcepb.Resource{small("changes", "1")})
	tap := newTap()
	var follows atomic.Bool
	tap.read = func(role string) {
		if role == "to" && follows.Load() {
			tap.freeze()
		}
	}
	following := make(chan struct{}, 100)
	over := make(chan error, 1)
	o := quick(Options{Live: true, Progress: func(p Progress) {
		if p.Phase == Following {
			following <- struct{}{}
		}
	}})
	o.lease = 100 * time.Millisecond
	go func() {
		_, err := Run(limited(t), from, &tapped{Backend: to, tap: tap, role: "to", plain: true}, o)
		over <- err
	}()
	<-following
	follows.Store(true)
	write(t, from, small("changes", "2"))
	<-tap.stopped
	write(t, from, small("changes", "1"))
	next := quick(Options{Live: true, CutoverLag: time.Hour})
	next.takeover = 2 * o.lease // longer than the lease, which is the whole protection
	if _, err := Run(limited(t), from, to, next); err != nil {
		t.Fatal(err)
	}
	before := versions(t, to)
	tap.thaw()
	if err := <-over; !errors.Is(err, ErrSuperseded) {
		t.Errorf("got %v, expected ErrSuperseded", err)
	}
	if after := versions(t, to); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("the suspended tool has changed the target: %v, %v", before, after)
	}
	wantEqual(t, from, to)
}

func TestLeaseIsShorterThanTheTakeover(t *testing.T) {
	t.Parallel()
	if leaseTime >= takeoverTime {
		t.Errorf("a heartbeat allows writes for %v, and others wait %v", leaseTime, takeoverTime)
	}
}

// A clock that is set back does not prevent heartbeats.
func TestHeartbeatsAfterClockSetBack(t *testing.T) {
	t.Parallel()
	b := fixture.Open(t, "mem://")
	store := moverOf(t, b)
	beats := &beating{Mover: store, beats: make(chan struct{}, 10)}
	j := &journal{store: beats}
	if err := j.change(limited(t), func(s *state) { s.Format, s.Run = stateFormat, "run" }); err != nil {
		t.Fatal(err)
	}
	<-beats.beats
	j.state.UpdateTime = time.Now().Add(time.Hour)
	m := &migration{journal: j}
	stop := m.keepAlive(limited(t), func(error) {})
	defer stop()
	select {
	case <-beats.beats:
	case <-time.After(fixture.Timeout):
		t.Fatal("no heartbeat in time")
	}
}

// beating is a journal that signals its notes.
type beating struct {
	driver.Mover
	beats chan struct{}
}

func (b *beating) WriteNote(ctx context.Context, name string, value []byte, revision string) (string, error) {
	next, err := b.Mover.WriteNote(ctx, name, value, revision)
	b.beats <- struct{}{}
	return next, err
}
