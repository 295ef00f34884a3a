package relay

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/dynamodb/internal/streams"
	"github.com/ashlar-dev/storage/lease"
)

// candidate makes a node a relay when one is missing.
type candidate struct {
	*node
	server     *server
	self       record
	loneSince  time.Time // no relay was found since then
	retireTime time.Time // when the node ceased to be a relay because of a failure
}

// slots are the names of the two locks, and candidateSlots the names of the records of candidates. A candidate takes a slot that is empty, or
// whose process does not answer, so that processes which are killed again and again leave no more records than that.
var slots, candidateSlots = []string{"1", "2"}, []string{"1", "2", "3", "4", "5", "6"}

// retireFor is how long a node is no candidate after it failed as a relay.
const retireFor = 10 * time.Minute

// electionInterval is the pause of a candidate that has found both relays. A process that misses a relay wakes the candidates earlier.
const electionInterval = time.Minute

// run is a candidate until ctx ends.
func (c *candidate) run(ctx context.Context) {
	for ctx.Err() == nil {
		complete, err := c.elect(ctx)
		if err != nil && ctx.Err() == nil {
			c.host.Recorder.Logger().Warn("the election of relays is delayed", "error", err)
		}
		pause := c.host.TTL / 6
		if complete {
			pause = electionInterval
		}
		reachable, probed := c.server.isReachable()
		if reachable {
			probed = nil
		}
		select {
		case <-ctx.Done():
		case <-probed:
		case <-c.kick:
		case <-time.After(pause/2 + rand.N(pause/2+1)):
		}
	}
	c.withdraw()
}

// elect reads the directory, probes the processes in it, and becomes a relay if one is missing. It returns true if none is. The node is published
// in any case, because a process that misses a relay later wakes the published candidates.
func (c *candidate) elect(ctx context.Context) (complete bool, err error) {
	missing, err := c.missing(ctx)
	if err != nil {
		return false, err
	}
	published, free, err := c.probeCandidates(ctx, false)
	if err != nil || !published && len(free) == 0 {
		return err == nil && len(missing) == 0, err
	}
	if !published {
		if err := c.directory.publish(ctx, candidateType, free[rand.N(len(free))], c.self); err != nil {
			return false, fmt.Errorf("publish the candidate: %w", err)
		}
	}
	if len(missing) == 0 {
		return true, nil
	}
	reachable, _ := c.server.isReachable()
	switch {
	case !c.retireTime.IsZero() && time.Since(c.retireTime) < retireFor:
		return false, nil
	case reachable:
		c.loneSince = time.Time{}
		return false, c.campaign(ctx, missing, true)
	case len(missing) < len(slots):
		c.loneSince = time.Time{}
		return false, nil
	case c.loneSince.IsZero():
		c.loneSince = time.Now()
		return false, nil
	case time.Since(c.loneSince) < c.host.TTL/3:
		return false, nil
	}
	return false, c.campaign(ctx, slots[len(slots)-1:], false)
}

// missing returns the slots without a relay that can be reached.
func (c *candidate) missing(ctx context.Context) ([]string, error) {
	all, err := c.directory.list(ctx, relayType)
	if err != nil {
		return nil, err
	}
	alive := map[string]bool{}
	for i, reached := range c.peers.probeAll(ctx, all, false) {
		alive[all[i].slot] = reached
	}
	var missing []string
	for _, i := range rand.Perm(len(slots)) {
		if !alive[slots[i]] {
			missing = append(missing, slots[i])
		}
	}
	return missing, nil
}

// probeCandidates proves to other candidates that they can be reached. It reports whether the node is one of them, and returns the slots that
// are empty or whose process does not answer.
func (c *candidate) probeCandidates(ctx context.Context, wanted bool) (published bool, free []string, err error) {
	all, err := c.directory.list(ctx, candidateType)
	if err != nil {
		return false, nil, err
	}
	taken := map[string]bool{}
	for i, reached := range c.peers.probeAll(ctx, all, wanted) {
		own := all[i].process == c.process
		published = published || own
		taken[all[i].slot] = reached || own
	}
	for _, slot := range candidateSlots {
		if !taken[slot] {
			free = append(free, slot)
		}
	}
	return published, free, nil
}

// campaign waits for one of the locks for a while, and is a relay while it holds it. public reports whether others may subscribe.
func (c *candidate) campaign(ctx context.Context, free []string, public bool) error {
	slot, tenure, err := c.acquire(ctx, free)
	if errors.Is(err, lease.ErrHeld) {
		return nil
	}
	if err != nil {
		return err
	}
	err = c.serve(ctx, tenure, slot, public)
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.host.TTL)
	defer cancel()
	c.retract(ending, slot)
	return errors.Join(err, tenure.Resign(ending))
}

// acquire acquires a lock that is free, or waits for the first one.
func (c *candidate) acquire(ctx context.Context, free []string) (string, *lease.Tenure, error) {
	b, err := c.directory.store(ctx)
	if err != nil {
		return "", nil, err
	}
	var first *lease.Elector
	for _, slot := range free {
		elector, err := lease.NewElector(b, tenancy, "relay-"+slot, &lease.Options{TTL: c.host.TTL, Holder: c.self.address})
		if err != nil {
			return "", nil, err
		}
		tenure, err := elector.Try(ctx)
		if !errors.Is(err, lease.ErrHeld) {
			return slot, tenure, err
		}
		if first == nil {
			first = elector
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 2*c.host.TTL)
	defer cancel()
	tenure, err := first.Campaign(ctx)
	return free[0], tenure, err
}

// errRetired ends a relay that no other process has reached, or that is not needed.
var errRetired = errors.New("the relay has retired")

// serve reads the stream until the tenure ends. The lease limits the number of readers, so reading ends with it.
func (c *candidate) serve(ctx context.Context, tenure *lease.Tenure, slot string, public bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-tenure.Done():
			cancel(tenure.Err())
		case <-ctx.Done():
		}
	}()
	config := c.host.Config
	config.Lag = nil // it is the subscriber's
	relay := streams.NewRelay(config)
	var overseer sync.WaitGroup
	err := relay.Run(ctx, func() {
		overseer.Go(func() { c.oversee(ctx, cancel, tenure, slot, relay, public) })
	})
	ended := context.Cause(ctx)
	cancel(nil)
	overseer.Wait()
	c.local.Store(nil)
	if c.server.relay.Swap(nil) != nil {
		c.host.Recorder.Logger().Info("the process is no relay of the store any more", "address", c.self.address, "reason", ended, "error", err)
	}
	switch {
	case ended == nil:
		if !errors.Is(err, storage.ErrCompacted) && !errors.Is(err, streams.ErrStreamEnded) {
			c.retireTime = time.Now() // another process may be able to read the stream
		}
		return err
	case errors.Is(ended, errRetired), errors.Is(ended, context.Canceled):
		return nil
	}
	return ended
}

// oversee publishes a relay. It retires a relay that others cannot reach, and a private relay when there is a published one.
func (c *candidate) oversee(ctx context.Context, cancel context.CancelCauseFunc, tenure *lease.Tenure, slot string, relay *streams.Relay, public bool) {
	c.local.Store(relay)
	published := false
	for {
		if public && !published {
			c.server.relay.Store(relay)
			if err := c.directory.publish(ctx, relayType, slot, c.self, tenure.Fence()); err != nil {
				cancel(fmt.Errorf("publish the relay: %w", err))
				return
			}
			published = true
			c.host.Recorder.Logger().Info("the process is a relay of the store", "address", c.self.address)
		}
		_, probed := c.server.isReachable()
		if published {
			probed = nil
		}
		select {
		case <-ctx.Done():
			return
		case <-probed:
		case <-time.After(c.host.TTL / 3):
		}
		reachable, _ := c.server.isReachable()
		missing, err := c.missing(ctx) // its own slot is among them
		switch {
		case published && !reachable:
			cancel(errRetired)
			return
		case !published && reachable:
			public = true
		case err != nil: // the lease decides
		case !published && len(missing) < len(slots):
			cancel(errRetired)
			return
		}
		if err != nil || published && len(missing) < len(slots) {
			continue
		}
		if _, _, err := c.probeCandidates(ctx, true); err != nil && ctx.Err() == nil {
			c.host.Recorder.Logger().Warn("the probe of candidates failed", "error", err)
		}
	}
}

// retract deletes the published record of a slot if it is this process's.
func (c *candidate) retract(ctx context.Context, slot string) {
	all, err := c.directory.list(ctx, relayType)
	for _, r := range all {
		if r.slot == slot && r.process == c.process {
			err = errors.Join(err, c.directory.remove(ctx, r))
		}
	}
	if err != nil {
		c.host.Recorder.Logger().Warn("the record of the relay remains", "error", err)
	}
}

// withdraw deletes the record of the candidate.
func (c *candidate) withdraw() {
	ctx, cancel := context.WithTimeout(context.Background(), c.host.TTL)
	defer cancel()
	all, err := c.directory.list(ctx, candidateType)
	for _, r := range all {
		if r.process == c.process {
			err = errors.Join(err, c.directory.remove(ctx, r))
		}
	}
	if err != nil {
		c.host.Recorder.Logger().Warn("the record of the candidate remains", "error", err)
	}
}
