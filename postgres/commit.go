package postgres

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
)

// Apply implements driver.Driver. What is one operation joins a batch; a transaction is one statement and a commit.
func (b *handle) Apply(ctx context.Context, mutations []driver.Mutation) (err error) {
	var room [1]*op
	ops := room[:]
	if len(mutations) > len(room) {
		ops = make([]*op, len(mutations))
	}
	for i := range mutations {
		if ops[i], err = newOp(&mutations[i]); err != nil {
			return err
		}
	}
	if len(ops) > 1 || mutations[0].Verb == driver.Check || driver.GuardOf(ctx) != nil {
		err = b.commit(ctx, ops)
	} else {
		err = b.submit(ctx, ops[0])
	}
	for i := range mutations {
		if err == nil && mutations[i].Verb == driver.Write {
			mutations[i].Written = versionText(ops[i].token)
		}
	}
	return err
}

// commit carries out operations on different keys, all or none of them. The error of one that failed is a *storage.OpError with its
// place in ops.
func (b *handle) commit(ctx context.Context, ops []*op) error {
	guard := driver.GuardOf(ctx)
	for _, o := range ops {
		o.guard = guard
	}
	sorted := slices.Clone(ops)
	slices.SortFunc(sorted, func(x, y *op) int { return bytes.Compare(x.keyBytes, y.keyBytes) })
	busy := time.Millisecond
	err := b.repeat(ctx, func(ctx context.Context) error {
		for {
			if err := b.settle(ctx, withLost(sorted), false); err != nil {
				return err
			}
			if slices.ContainsFunc(ops, func(o *op) bool { return o.applied && o.changes() }) {
				return nil // an earlier attempt, and all of it
			}
			if err := b.sendOps(ctx, sorted, true); err != nil {
				return err
			}
			again, err := decideAll(ops)
			if !again {
				return err
			}
			// It is waited here for whoever holds a key, with no connection taken.
			if err := b.pause(ctx, busy, errBusy); err != nil {
				return err
			}
			busy = min(2*busy, maxPause)
		}
	})
	if err != nil && len(withLost(sorted)) > 0 {
		err = b.lastSettle(ctx, sorted, err)
	}
	b.answered() // before the feed can show the changes
	if slices.ContainsFunc(ops, func(o *op) bool { return o.applied && o.changes() }) {
		b.changed(sorted)
		return nil
	}
	return err
}

// decideAll is the answer to a transaction whose statement was answered.
func decideAll(ops []*op) (again bool, err error) {
	for i, o := range ops {
		retry, err := o.decide()
		if err != nil {
			return false, failed{&storage.OpError{Index: i, Err: err}}
		}
		again = again || retry
	}
	// What could have been done was not, where another operation was in the way.
	return again, nil
}
