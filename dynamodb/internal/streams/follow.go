package streams

import (
	"context"
	"errors"
	"time"
)

const (
	// listEvery is how often the shards are listed without a reason, so that a stream that was disabled is noticed.
	listEvery = 5 * time.Minute
	// listPause is the least time between two listings while a shard is awaited, listMost the longest.
	listPause, listMost = 250 * time.Millisecond, 10 * time.Second
)

// errStreamEnded ends all watches.
var errStreamEnded = errors.New("the stream was disabled: what was written since is not in any history")

// follow lists the shards when it is time to, and goes on to the children of those that are at their end.
func (r *reader) follow(ctx context.Context) error {
	pos := r.position()
	if r.disabled && pos.active() == 0 {
		return errStreamEnded // disabling a stream closes its shards
	}
	now := time.Now()
	if now.Before(r.listAt) && !r.overdue() {
		return nil
	}
	l, err := r.list(ctx, pos)
	if err != nil {
		return err
	}
	next, more, err := r.next(ctx, pos)
	if err != nil {
		return err
	}
	r.disabled = r.disabled || l.disabled
	for _, pl := range next {
		if parent := r.tree.parentOf(pl.shard); parent != "" && pl.seq == "" {
			r.prover.inherit(pl.shard, parent)
		}
		pos = pos.with(pl.shard, pl.seq)
	}
	pos = r.tree.prune(pos)
	r.setPosition(pos)
	r.listAt = now.Add(listEvery)
	if proving, _ := r.prover.proving(); more || proving || r.childless(pos) {
		r.await = min(max(2*r.await, listPause), listMost)
		r.listAt = now.Add(r.await)
	} else {
		r.await = 0
	}
	return nil
}

// overdue reports whether a proof takes so long that the ticks may have gone to a shard that was not listed.
func (r *reader) overdue() bool {
	if r.await > 0 {
		return false // the next listing is near
	}
	proving, took := r.prover.proving()
	return proving && took > time.Second
}

// childless reports whether a shard at its end has no child yet.
func (r *reader) childless(pos *Position) bool {
	for _, pl := range pos.shards {
		if pl.seq == ended && !r.tree.hasChild(pl.shard) {
			return true
		}
	}
	return false
}
