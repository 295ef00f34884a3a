package lease

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// campaign is the way of one candidate to the lock.
type campaign struct {
	*Elector
	holder string
	obs    observation
	watch  storage.Watch // nil if there is none
	// yieldLimit is how long, at most, the candidate lets others go first when the lock becomes free. It grows with each time that another one
	// was faster: hundreds of candidates that try at once would have the next holder wait for hundreds of calls.
	yieldLimit time.Duration
}

// Campaign waits until this candidate holds the lock. Candidates have no order among each other. It goes on while the store is away. It
// fails when the context is over, when the backend is closed, and when the store refuses what a lock is made of. If the context is over, the
// error also matches [ErrHeld] if the last answer of the store was that somebody holds the lock, and otherwise the store's last error. If the
// context ends while a call is under way, the lock may be taken until its time to live has passed, by nobody.
func (e *Elector) Campaign(ctx context.Context) (*Tenure, error) {
	c := &campaign{Elector: e, holder: e.newHolderName()}
	defer c.unwatch()
	var why error // what was in the way, as far as it is known
	for conflicts := 0; ; {
		tenure, err := e.try(ctx, c.holder, &c.obs)
		why = obstacleError(ctx, err, why)
		switch {
		case tenure != nil:
			return tenure, nil
		case ctx.Err() != nil:
			return nil, fmt.Errorf("lock %q: %w: %w", e.name, ctx.Err(), why)
		case err != nil && !isTransient(err):
			return nil, fmt.Errorf("lock %q: %w", e.name, err)
		case isConflict(err):
			c.yieldLimit = min(max(2*c.yieldLimit, time.Millisecond), retryPause)
			if conflicts++; conflicts > 1 { // nothing was there to be seen of the one before
				wait(ctx, rand.N(c.yieldLimit+1))
			}
			c.observe(ctx)
		case err != nil:
			wait(ctx, retryPause)
		default:
			conflicts = 0
			c.observe(ctx)
		}
	}
}

// obstacleError returns what keeps a candidate from the lock after a try that has failed with err, given what did so before. A try that the
// context has ended knows nothing new.
func obstacleError(ctx context.Context, err, before error) error {
	switch {
	case err == nil, isConflict(err):
		return ErrHeld
	case ctx.Err() != nil && before != nil:
		return before
	}
	return err
}

// observe follows the holder's signs of life until there was none for its time, or the lock is free, or something is to be read. It may
// return early: only a try proves anything.
func (c *campaign) observe(ctx context.Context) {
	if c.watch == nil {
		typ := storage.UnversionedType{Group: lockType.Group, Kind: storage.Wildcard}
		w, err := c.backend.WatchList(ctx, typ, c.tenancy, c.name)
		if err != nil {
			wait(ctx, retryPause)
			return
		}
		c.watch = w
	}
	var turn time.Time // when to try, if the lock was seen free
	for {
		at := c.obs.since.Add(c.obs.ttl)
		if !turn.IsZero() {
			at = turn
		}
		until, cancel := context.WithDeadline(ctx, at)
		ev, err := c.watch.Next(until)
		over := until.Err() != nil
		cancel()
		switch {
		case err != nil && over:
			return
		case err != nil:
			c.unwatch()
			wait(ctx, retryPause)
			return
		case c.matches(ev.GetDelete().GetResource(), lockType):
			return
		case c.matches(ev.GetUpsert().GetResource(), heartbeatType):
			c.obs.observeVersion(ev.GetUpsert().GetResource().GetVersion())
		case c.matches(ev.GetUpsert().GetResource(), lockType):
			holder, ttl, err := lockHolder(ev.GetUpsert().GetResource())
			switch {
			case err != nil, holder == c.holder: // a try whose answer was lost
				return
			case holder != "":
				c.obs.ttl, turn = ttl, time.Time{}
			case turn.IsZero():
				turn = time.Now().Add(rand.N(c.yieldLimit + 1))
			}
		}
	}
}

// matches reports whether a resource matches one of the lock's two.
func (c *campaign) matches(res *resourcepb.Resource, typ *resourcepb.Type) bool {
	return res.GetId().GetName() == c.name && res.GetId().GetType().GetKind() == typ.GetKind()
}

// unwatch ends the watch.
func (c *campaign) unwatch() {
	if c.watch != nil {
		c.watch.Close()
		c.watch = nil
	}
}
