package feed

import (
	"context"

	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
)

// Follower is a watch without a snapshot that returns its changes as events with their previous states.
type Follower[P any] struct{ bookmarker[P] }

// Follow returns a Follower of the changes after a position. It waits for the source to be ready, within ctx. It requires
// Options.Before and a source that is a Prover.
func (f *Feed[P]) Follow(ctx context.Context, filter key.Filter, from P) (*Follower[P], error) {
	m, err := f.Start(ctx)
	if err != nil {
		return nil, err
	}
	w := f.newWatch(m.run, filter, from)
	w.inHistory = true
	w.recalls.Store(true)
	return &Follower[P]{bookmarker[P]{w}}, nil
}

// Change is one result of a Follower: an event with its previous state, or a bookmark if Event is nil.
type Change[P any] struct {
	Event  *driver.Event[P]
	Before *driver.Version // with its Resource, which belongs to the caller
	More   bool            // the next event belongs to the same commit
	At     P
}

// Next is storage.Watch.Next.
func (f *Follower[P]) Next(ctx context.Context) (Change[P], error) {
	d, err := f.watch.deliver(ctx)
	return Change[P]{Event: d.event, Before: d.previous, More: d.more, At: d.at}, err
}
