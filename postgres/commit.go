package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/check"
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
	if err != nil {
		return nil, err
	}
	ctx, done, err := b.begin(ctx)
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
	err = b.commitAll(ctx, own)
	b.answered()
	if err != nil {
		return nil, fmt.Errorf("commit: %w", err)
	}
	b.changed(nil)
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
		m := newOp(opDelete, k, o.Delete.GetUid(), o.Version)
		if m.expected == nil {
			m.expected = []byte{}
		}
		return m, nil
	case o.Version == "":
		m := newOp(opPlaceholder, k, o.Check.GetUid(), "")
		m.groupVersion, m.data = []byte{}, []byte{}
		return m, nil
	default:
		return newOp(opCheck, k, o.Check.GetUid(), o.Version), nil
	}
}

// errAgain is for rows that changed between a statement's snapshot and its locks.
var errAgain = errors.New("the rows changed meanwhile")

func (b *Backend) commitAll(ctx context.Context, ops []*op) error {
	sorted := slices.Clone(ops)
	slices.SortFunc(sorted, func(x, y *op) int { return bytes.Compare(x.keyBytes, y.keyBytes) })
	lost := lostAnswer{since: b.seen.Load()}
	return b.attempts(ctx, func(ctx context.Context) error {
		if lost.happened {
			if applied, err := b.anyTookEffect(ctx, &lost, sorted); err != nil || applied {
				return err
			}
		}
		err := b.attempt(ctx, &lost, func(conn *pgx.Conn) error { return b.commitOnce(ctx, conn, ops, sorted) })
		var op *storage.OpError
		if lost.happened && errors.As(err, &op) {
			// It may have failed because of its own earlier attempt, committed since.
			if applied, lookErr := b.anyTookEffect(ctx, &lost, sorted); lookErr != nil || applied {
				return lookErr
			}
		}
		return err
	})
}

// anyTookEffect tells whether the transaction was committed: then all of its operations were, and any token proves it.
func (b *Backend) anyTookEffect(ctx context.Context, lost *lostAnswer, ops []*op) (bool, error) {
	disclaim(ops) // what the statement said counts only with the commit
	if err := b.settle(ctx, lost, ops); err != nil {
		return false, err
	}
	found := false
	for _, o := range ops {
		found = found || o.applied && (o.kind == opWrite || o.kind == opDelete)
	}
	return found, nil
}

func (b *Backend) commitOnce(ctx context.Context, conn *pgx.Conn, ops, sorted []*op) error {
	disclaim(ops)
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	committed := false
	defer func() {
		if !committed {
			rollback(tx)
		}
	}()
	if err := b.apply(ctx, conn, sorted, longWait); err != nil {
		return err
	}
	var placeholders, tokens [][]byte
	for i, o := range ops {
		again, err := o.decide()
		if again {
			return errAgain
		}
		if err != nil {
			return failed{&storage.OpError{Index: i, Err: err}}
		}
		if o.kind == opPlaceholder {
			placeholders, tokens = append(placeholders, o.keyBytes), append(tokens, o.token)
		}
	}
	if placeholders != nil {
		if _, err := tx.Exec(ctx, b.sql.removePlaceholders, placeholders, tokens); err != nil {
			return err
		}
	}
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	committed = true
	return nil
}
