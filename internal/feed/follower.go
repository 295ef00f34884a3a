package feed

import (
	"context"

	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
)

// Follower is a watch without a snapshot, whose changes come as events, with what was stored before each.
type Follower[P any] struct{ bookmarker[P] }

// Follow returns a Follower of the changes after a position. It waits for the source to be ready, within ctx. The feed has
// Options.Before, and its source is a Prover.
func (f *Feed[P]) Follow(ctx context.Context, filter key.Filter, from P) (*Follower[P], error) {
	m, err := f.Start(ctx)
	if err != nil {
		return nil, err
	}
	w := f.newWatch(m.run, filter, from)
	w.catching = true
	w.recalls.Store(true)
	return &Follower[P]{bookmarker[P]{w}}, nil
}

// Change is what a Follower delivers: an event with what was stored before it, or, where Event is nil, a bookmark.
type Change[P any] struct {
	Event  *driver.Event[P]
	Before *driver.Version // with its Resource, which is the caller's
	More   bool            // the next event is of the same commit
	At     P
}

// Next is storage.Watch.Next.
func (f *Follower[P]) Next(ctx context.Context) (Change[P], error) {
	d, err := f.watch.deliver(ctx)
	return Change[P]{Event: d.event, Before: d.previous, More: d.more, At: d.at}, err
}
