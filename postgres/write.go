package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/batch"
)

// errBusy says that another transaction holds the key.
var errBusy = errors.New("another transaction holds the key")

// submit carries out one operation. While another transaction holds its key it waits here, where it takes no connection, and
// tries again.
func (b *handle) submit(ctx context.Context, o *op) error {
	for pause := time.Millisecond; ; pause = min(2*pause, maxPause) {
		_, err := b.writes.Do(ctx, o)
		if !errors.Is(err, errBusy) {
			return o.unsettled(err)
		}
		if err := b.pause(ctx, pause, err); err != nil {
			return o.unsettled(err)
		}
	}
}

// unsettled is the error of a call that ended while it waited for its next attempt: if the answer to an earlier one was lost, that
// one may have happened, or still happen.
func (o *op) unsettled(err error) error {
	if err == nil || errors.Is(err, storage.ErrInconsistent) || len(o.lost) == 0 {
		return err // a batch that is still under way may have the operation only with the first of these errors
	}
	if errors.Is(err, storage.ErrClosed) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", storage.ErrInconsistent, err)
	}
	return err
}

// maxPause is the longest time between two looks at a key that another transaction holds.
const maxPause = 50 * time.Millisecond

type writeMember = batch.Call[*op, struct{}]

func (b *handle) writeBatch(ctx context.Context, calls []*writeMember) {
	ops := make([]*op, len(calls))
	for i, c := range calls {
		ops[i] = c.Request
	}
	// What is known of a member is told at once: it does not have to wait for the others.
	known := func() {
		b.answered()
		for _, c := range calls {
			if c.Request.applied {
				c.Done(struct{}{}, nil)
			}
		}
	}
	err := b.carryOut(ctx, ops, known)
	b.answered()
	b.changed(ops)
	for _, c := range calls {
		switch again, refusal := c.Request.decide(); {
		case c.Request.applied:
			c.Done(struct{}{}, nil)
		case err != nil:
			c.Done(struct{}{}, err)
		case again:
			c.Done(struct{}{}, errBusy)
		case c.Request.failure != nil: // of the store or its fence, as for a transaction
			c.Done(struct{}{}, c.Request.failure)
		case refusal != nil:
			c.Done(struct{}{}, &storage.OpError{Err: refusal})
		default:
			c.Done(struct{}{}, nil)
		}
	}
}

// carryOut carries out operations on different keys, each by itself, and finds out what became of them also where an answer is
// lost. Without an error each was applied, or knows what is in its way. known is called when more were found to be applied.
func (b *handle) carryOut(ctx context.Context, ops []*op, known func()) error {
	slices.SortFunc(ops, func(x, y *op) int { return bytes.Compare(x.keyBytes, y.keyBytes) })
	apart := false
	err := b.repeat(ctx, func(ctx context.Context) error {
		if err := b.settle(ctx, withLost(ops), false); err != nil {
			return err
		}
		known()
		left := unapplied(ops)
		err := b.sendParts(ctx, left, apart)
		apart = apart || isLockTimeout(err)
		if len(ops) > 1 && err != nil && fateOf(err) == refused {
			apart = true // one member may be to blame
			if again := b.sendParts(ctx, unapplied(left), true); again == nil || fateOf(again) != refused {
				err = again // the refusal is nothing to those who were not refused
			}
		}
		if err != nil {
			return err
		}
		// What was refused may have been refused because of its own earlier attempt, committed since.
		failed := slices.ContainsFunc(ops, func(o *op) bool { return o.failure != nil })
		return b.settle(ctx, refusedWithLost(ops), failed)
	})
	if err == nil || len(withLost(ops)) == 0 {
		return err
	}
	return b.lastSettle(ctx, ops, err)
}

// lastSettle is for operations that end in an error and have an attempt whose answer was lost: a refusal of the next attempt is
// their answer only if that one is over for good.
func (b *handle) lastSettle(ctx context.Context, ops []*op, err error) error {
	if errors.Is(err, storage.ErrInconsistent) {
		return err
	}
	if errors.Is(err, storage.ErrClosed) {
		return fmt.Errorf("%w: %w", storage.ErrInconsistent, err)
	}
	settleErr := b.repeat(ctx, func(ctx context.Context) error { return b.settle(ctx, withLost(ops), true) })
	if settleErr != nil {
		return errors.Join(settleErr, err)
	}
	return err
}

func refusedWithLost(ops []*op) []*op {
	return slices.DeleteFunc(withLost(ops), func(o *op) bool { return !o.refused() })
}

func unapplied(ops []*op) []*op {
	var left []*op
	for _, o := range ops {
		if !o.applied {
			left = append(left, o)
		}
	}
	return left
}

// sendParts sends operations in one statement, or each in its own.
func (b *handle) sendParts(ctx context.Context, ops []*op, apart bool) error {
	if !apart {
		return b.sendOps(ctx, ops, false)
	}
	for _, o := range ops {
		if err := b.sendOps(ctx, []*op{o}, false); err != nil {
			switch {
			case isLockTimeout(err):
				o.busy = true // somebody else is creating it
			case fateOf(err) == refused && len(ops) > 1:
				o.failure = refusal(err) // it is nothing to the others
			default:
				return err
			}
		}
	}
	return nil
}

// sendOps sends one statement: what can only replace something has statements of its own, which need no snapshot after their
// locks.
func (b *handle) sendOps(ctx context.Context, ops []*op, atomic bool) error {
	switch {
	case len(ops) == 0:
		return nil
	case atomic || slices.ContainsFunc(ops, func(o *op) bool { return !o.updates() }):
		return b.send(ctx, ops, true, func(ctx context.Context, conn *pgx.Conn, a *attempt) error {
			return b.apply(ctx, conn, a, ops, atomic)
		})
	case len(ops) == 1:
		return b.send(ctx, ops, false, func(ctx context.Context, conn *pgx.Conn, a *attempt) error {
			return b.updateOne(ctx, conn, a, ops[0])
		})
	default:
		return b.send(ctx, ops, false, func(ctx context.Context, conn *pgx.Conn, a *attempt) error {
			return b.updateMany(ctx, conn, a, ops)
		})
	}
}

func (b *handle) updateOne(ctx context.Context, conn *pgx.Conn, a *attempt, o *op) error {
	var revision pgtype.Int8
	var uid, version []byte
	var late pgtype.Bool
	err := conn.QueryRow(ctx, b.sql.updateOne,
		o.keyBytes, []byte(o.Uid), o.expected, o.token, o.groupVersion, o.owner, o.data, a.expires).
		Scan(&revision, &uid, &version, &late)
	switch {
	case isLockTimeout(err):
		o.answered(nil, nil, true)
		return nil
	case err != nil:
		return err
	case revision.Valid:
		o.done(revision.Int64, 0)
	case late.Bool:
		return errLate
	default:
		o.answered(uid, version, false)
	}
	return nil
}

func (b *handle) updateMany(ctx context.Context, conn *pgx.Conn, a *attempt, ops []*op) error {
	in := columnsOf(ops)
	rows, err := conn.Query(ctx, b.sql.updateMany, in.keys, in.uids, in.expected, in.tokens, in.groupVersions, in.owners, in.data, a.expires)
	if err != nil {
		return err
	}
	var place int
	var uid, version []byte
	var revision pgtype.Int8
	var busy bool
	answers := 0
	_, err = pgx.ForEachRow(rows, []any{&place, &uid, &version, &revision, &busy}, func() error {
		answers++
		if o := ops[place-1]; revision.Valid {
			o.done(revision.Int64, 0)
		} else {
			o.answered(uid, version, busy)
		}
		return nil
	})
	if err == nil && answers == 0 {
		return errLate
	}
	return err
}

func (b *handle) apply(ctx context.Context, conn *pgx.Conn, a *attempt, ops []*op, atomic bool) error {
	in := columnsOf(ops)
	note, noted := guardColumns(ops[0].guard)
	rows, err := conn.Query(ctx, b.sql.apply, a.lock, a.expires, atomic,
		in.keys, in.kinds, in.uids, in.expected, in.tokens, in.groupVersions, in.owners, in.data, note, noted)
	if err != nil {
		return err
	}
	var place int
	var outcome int16
	var uid, version []byte
	var revision pgtype.Int8
	var rank pgtype.Int4
	_, err = pgx.ForEachRow(rows, []any{&place, &outcome, &uid, &version, &revision, &rank}, func() error {
		if o := ops[place-1]; revision.Valid {
			o.done(revision.Int64, rank.Int32)
		} else {
			o.answered(uid, version, outcome == outcomeBusy)
		}
		return nil
	})
	return err
}

// outcomeBusy is what the function apply answers for a key that another transaction holds.
const outcomeBusy = 0

// columns are operations as the arrays that the statements take.
type columns struct {
	keys, uids, expected, tokens, groupVersions, owners, data [][]byte
	kinds                                                     []int16
}

func columnsOf(ops []*op) *columns {
	n := len(ops)
	room := make([][]byte, 7*n)
	column := func(i int) [][]byte { return room[i*n : (i+1)*n : (i+1)*n] }
	c := &columns{column(0), column(1), column(2), column(3), column(4), column(5), column(6), make([]int16, n)}
	for i, o := range ops {
		c.keys[i], c.uids[i], c.expected[i], c.kinds[i] = o.keyBytes, []byte(o.Uid), o.expected, o.kind
		c.tokens[i], c.groupVersions[i], c.owners[i], c.data[i] = o.token, o.groupVersion, o.owner, o.data
	}
	return c
}
