package controller

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/ashlar-dev/storage/internal/replica"
	"github.com/ashlar-dev/storage/resourcepb"
)

// mapping turns the changes of one type into requests for one controller.
type mapping struct {
	informer *informer
	mapper   DependencyMapper // nil for the managed type, whose changes concern the changed resource
	runtime  func() Runtime
	add      func(*resourcepb.ID)
	resync   func() // requests all managed resources
	log      *slog.Logger

	failedChanges []failedChange
}

// failedChange is a change whose mapper has failed.
type failedChange struct {
	states []*resourcepb.Resource
	pause  time.Duration
	dueAt  time.Time
}

// maxFailed bounds the failed changes of a mapping. Beyond it, all managed resources are requested instead.
const maxFailed = 1024

// The pauses between the calls of a mapper that fails.
const (
	minMapPause = 5 * time.Millisecond
	maxMapPause = time.Minute
)

// run maps changes until ctx ends. follower reads the changes from the start of the controller on.
func (m *mapping) run(ctx context.Context, follower *replica.Follower[entry]) {
	for ctx.Err() == nil {
		m.follow(ctx, follower)
		follower.Close()
		if ctx.Err() != nil {
			return
		}
		if err := m.informer.copy.Err(); err != nil { // the store was closed before the manager has ended
			m.log.ErrorContext(ctx, "the changes of a type have ended", "type", typeName(m.informer.typ), "error", err)
			return
		}
		// The mapping has fallen behind the log of changes. A state that it has missed matters only to a reconcile that has read it, and that
		// resource is requested, also if it is gone.
		m.log.WarnContext(ctx, "fell behind the changes of a type; reconciling everything", "type", typeName(m.informer.typ))
		var view *replica.View[entry]
		view, follower = m.informer.copy.BorrowAndFollow()
		view.Return()
		m.failedChanges = nil
		m.resync()
	}
}

// follow maps the changes of a follower until it ends.
func (m *mapping) follow(ctx context.Context, follower *replica.Follower[entry]) {
	for {
		waitCtx, cancel := ctx, context.CancelFunc(func() {})
		if len(m.failedChanges) > 0 {
			first := slices.MinFunc(m.failedChanges, func(a, b failedChange) int { return a.dueAt.Compare(b.dueAt) })
			waitCtx, cancel = context.WithDeadline(ctx, first.dueAt)
		}
		changes, err := follower.Next(waitCtx)
		isDue := waitCtx.Err() != nil
		cancel()
		if ctx.Err() != nil || err != nil && !isDue {
			return
		}
		for _, c := range changes {
			m.mapStates(ctx, statesOf(c), minMapPause)
		}
		if err != nil {
			m.retry(ctx)
		}
	}
}

// statesOf returns the old and the new state of a change.
func statesOf(c replica.Change[entry]) (states []*resourcepb.Resource) {
	for _, r := range []*row{c.Old, c.New} {
		if r != nil {
			states = append(states, r.Value.res)
		}
	}
	return states
}

// retry maps the failed changes that are due.
func (m *mapping) retry(ctx context.Context) {
	now := time.Now()
	failed := m.failedChanges
	m.failedChanges = nil
	for _, f := range failed {
		if f.dueAt.After(now) {
			m.failedChanges = append(m.failedChanges, f)
			continue
		}
		m.mapStates(ctx, f.states, min(2*f.pause, maxMapPause))
	}
}

// mapStates requests the resources that the states of a changed resource concern. After an error it keeps the change for another call after a
// pause.
func (m *mapping) mapStates(ctx context.Context, states []*resourcepb.Resource, pause time.Duration) {
	if m.mapper == nil {
		m.add(states[0].GetId())
		return
	}
	for _, state := range states {
		var requests []Request
		err := protect(func() (err error) {
			requests, err = m.mapper(ctx, m.runtime(), withoutSharing(state))
			return err
		})
		if err == nil {
			for _, r := range requests {
				m.add(r.ID)
			}
			continue
		}
		m.log.ErrorContext(ctx, "a mapper failed; retrying", "type", typeName(m.informer.typ), "error", err, "pause", pause)
		if m.failedChanges = append(m.failedChanges, failedChange{states, pause, time.Now().Add(pause)}); len(m.failedChanges) > maxFailed {
			m.failedChanges = nil
			m.resync()
		}
		return
	}
}
