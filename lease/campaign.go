package lease

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// campaign is one candidate's attempt to acquire the lock.
type campaign struct {
	*Elector
	holder string
	obs    observation
	watch  storage.Watch // nil if there is none
	// yieldLimit is the maximum random delay before a try for a free lock. It doubles with each conflict: if hundreds of candidates tried at once,
	// the next holder would wait for hundreds of calls.
	yieldLimit time.Duration
}

// Campaign blocks until this candidate holds the lock. Candidates have no order. It retries while the store cannot be reached. It fails if the
// context ends, if the backend is closed, or if the store refuses the lock's resources.
//
// If the context ends, the error also matches [ErrHeld] if another candidate held the lock by the store's last answer, and the store's last
// error otherwise. If the context ends during a call, the lock may be taken, without a holder, until its time to live has passed.
func (e *Elector) Campaign(ctx context.Context) (*Tenure, error) {
	c := &campaign{Elector: e, holder: e.newHolderName()}
	defer c.unwatch()
	var cause error // the last known obstacle
	for conflicts := 0; ; {
		tenure, err := e.try(ctx, c.holder, &c.obs)
		cause = obstacleError(ctx, err, cause)
		switch {
		case tenure != nil:
			return tenure, nil
		case ctx.Err() != nil:
			return nil, fmt.Errorf("lock %q: %w: %w", e.name, ctx.Err(), cause)
		case err != nil && !isTransient(err):
			return nil, fmt.Errorf("lock %q: %w", e.name, err)
		case isConflict(err):
			c.yieldLimit = min(max(2*c.yieldLimit, time.Millisecond), retryPause)
			if conflicts++; conflicts > 1 { // observe returned early after the previous conflict
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

// obstacleError returns the obstacle after a try that failed with err. A try that the context has ended adds no information, so the previous
// obstacle remains.
func obstacleError(ctx context.Context, err, before error) error {
	switch {
	case err == nil, isConflict(err):
		return ErrHeld
	case ctx.Err() != nil && before != nil:
		return before
	}
	return err
}

// observe follows the holder's heartbeats. It returns when none came for the time to live, when the lock is free, or when the caller
// must read a record. It may return early: that does no harm, because only a try proves anything.
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
	var tryAt time.Time // set when the lock was observed free
	for {
		at := c.obs.since.Add(c.obs.ttl)
		if !tryAt.IsZero() {
			at = tryAt
		}
		until, cancel := context.WithDeadline(ctx, at)
		ev, err := c.watch.Next(until)
		timedOut := until.Err() != nil
		cancel()
		switch {
		case err != nil && timedOut:
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
			case err != nil, holder == c.holder: // an earlier try succeeded, but its answer was lost
				return
			case holder != "":
				c.obs.ttl, tryAt = ttl, time.Time{}
			case tryAt.IsZero():
				tryAt = time.Now().Add(rand.N(c.yieldLimit + 1))
			}
		}
	}
}

// matches reports whether a resource is the lock's resource of a type.
func (c *campaign) matches(res *resourcepb.Resource, typ *resourcepb.Type) bool {
	return res.GetId().GetName() == c.name && res.GetId().GetType().GetKind() == typ.GetKind()
}

// unwatch closes the watch.
func (c *campaign) unwatch() {
	if c.watch != nil {
		c.watch.Close()
		c.watch = nil
	}
}
