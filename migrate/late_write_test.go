package migrate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// delaying is a target to which the first write of a resource is delayed on the way: its caller gets no answer, and it arrives when deliver is
// called.
type delaying struct {
	*tapped
	name string

	mu      sync.Mutex
	delayed func() error // the write; nil before it
}

func (d *delaying) WriteCAS(ctx context.Context, res *resourcepb.Resource) (*resourcepb.Resource, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if res.GetId().GetName() != d.name || d.delayed != nil {
		return d.tapped.WriteCAS(ctx, res)
	}
	d.delayed = func() error {
		_, err := d.tapped.WriteCAS(context.WithoutCancel(ctx), res)
		return err
	}
	return nil, fmt.Errorf("%w: no answer", storage.ErrInconsistent)
}

// deliver delivers the delayed write, and returns its result.
func (d *delaying) deliver(t *testing.T) error {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.delayed == nil {
		t.Fatal("no write was delayed")
	}
	return d.delayed()
}

// A write of the tool gets no answer, is repeated, and arrives after the source has deleted the resource, and the tool has deleted it from the
// target. It does not create the resource again: a target with other contents would keep it for ever.
func TestDelayedWriteAfterDeletion(t *testing.T) {
	t.Parallel()
	for _, into := range []Into{Merge, Overwrite} {
		for _, phase := range []string{"copy", "follow"} {
			t.Run(fmt.Sprintf("into %d, %s", into, phase), func(t *testing.T) {
				t.Parallel()
				from, inner := fixture.Open(t, "mem://"), fixture.Open(t, "mem://")
				to := &delaying{tapped: &tapped{Backend: inner, tap: newTap(), role: "to"}, name: "late"}
				write(t, from, small("stays", "1"))
				write(t, inner, small("own", "1"))
				if phase == "copy" {
					write(t, from, small("late", "1"))
				}
				following, cutover := make(chan struct{}), make(chan struct{}, 1)
				var once sync.Once
				o := quick(Options{Into: into, Live: true, Cutover: cutover, Batch: 1, Parallel: 1, Progress: func(p Progress) {
					if p.Phase == Following {
						once.Do(func() { close(following) })
					}
				}})
				over := make(chan error, 1)
				go func() {
					_, err := Run(limited(t), from, to, o)
					over <- err
				}()
				<-following
				if phase == "follow" {
					write(t, from, small("late", "1"))
				}
				fixture.Eventually(t, "the repeated write", func() bool { return fixture.Stored(t, inner, small("late", "").Id) != nil })
				fixture.Remove(t, from, fixture.Stored(t, from, small("late", "").Id))
				fixture.Eventually(t, "the deletion", func() bool { return fixture.Stored(t, inner, small("late", "").Id) == nil })
				if err := to.deliver(t); !errors.Is(err, driver.ErrSuperseded) {
					t.Errorf("the delayed write: %v, expected ErrSuperseded", err)
				}
				cutover <- struct{}{}
				if err := <-over; err != nil {
					t.Fatal(err)
				}
				if got, want := fmt.Sprint(contents(t, inner)), fmt.Sprint(map[string]string{"own": "1", "stays": "1"}); got != want {
					t.Errorf("the target has %v, expected %v", got, want)
				}
			})
		}
	}
}

// A write of a copy is delayed until the target is open, and a program has deleted the resource there. It changes nothing, also if the note that
// ends the tool's writes could not be written.
func TestDelayedWriteAfterCopy(t *testing.T) {
	t.Parallel()
	from, inner := fixture.Open(t, "mem://"), fixture.Open(t, "mem://")
	tap, guards := newTap(), 0
	tap.at = func(_ int, before bool, what string) error {
		if what == "to note mover" && before {
			if guards++; guards > 1 && fixture.Stored(t, inner, small("late", "").Id) != nil {
				return fmt.Errorf("%w: no answer", storage.ErrInconsistent)
			}
		}
		return nil
	}
	to := &delaying{tapped: &tapped{Backend: inner, tap: tap, role: "to"}, name: "late"}
	write(t, from, small("late", "1"))
	o := quick(Options{Batch: 1, Parallel: 1, Timeout: time.Second})
	if _, err := Run(limited(t), from, to, o); err != nil {
		t.Logf("the migration failed, so the target stays closed: %v", err)
		return
	}
	fixture.Remove(t, inner, fixture.Stored(t, inner, small("late", "").Id))
	err := to.deliver(t)
	if got := contents(t, inner); len(got) != 0 {
		t.Errorf("a resource that was deleted after the migration is there again: %v, %v", got, err)
	}
}
