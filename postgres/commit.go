package postgres

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/check"
	"github.com/ashlar-dev/storage/internal/handover"
	"github.com/ashlar-dev/storage/internal/key"
	"github.com/ashlar-dev/storage/internal/message"
	"github.com/ashlar-dev/storage/resourcepb"
)

// maxOps bounds a transaction. Postgres itself has no such limit.
const maxOps = 512

// MaxOps implements storage.Transactor.
func (b *Backend) MaxOps() int { return maxOps }

// Commit implements storage.Transactor. It is one statement and a commit.
func (b *Backend) Commit(ctx context.Context, ops []storage.Op) ([]*resourcepb.Resource, error) {
	keys, err := check.Ops(ops, maxOps, b.opts.MaxSize)
	ctx, done, err := b.begin(ctx, err)
	if err != nil {
		return nil, err
	}
	defer done()
	if len(ops) == 0 {
		return nil, nil
	}
	own := make([]*op, len(ops))
	for i := range ops {
		if own[i], err = newMember(keys[i], &ops[i]); err != nil {
			return nil, &storage.OpError{Index: i, Err: err}
		}
	}
	if err := b.commit(ctx, own); err != nil {
		return nil, fmt.Errorf("commit: %w", err)
	}
	results := make([]*resourcepb.Resource, len(ops))
	for i := range ops {
		if ops[i].Write != nil {
			results[i] = message.Clone(ops[i].Write)
			results[i].Version = versionText(own[i].token)
		}
	}
	return results, nil
}

func newMember(k key.Key, o *storage.Op) (*op, error) {
	switch {
	case o.Write != nil:
		return newWrite(k, o.Write)
	case o.Delete != nil:
		return newDelete(k, o.Delete, o.Version), nil
	default:
		return newCheck(k, o.Check, o.Version), nil
	}
}

// commit carries out operations on different keys, all or none of them. The error of one that failed is a *storage.OpError with its
// place in ops.
func (b *Backend) commit(ctx context.Context, ops []*op) error {
	guard := handover.GuardOf(ctx)
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
