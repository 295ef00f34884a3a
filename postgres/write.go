package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/batch"
	"github.com/ashlar-dev/storage/internal/cas"
	"github.com/ashlar-dev/storage/internal/check"
	"github.com/ashlar-dev/storage/internal/message"
	"github.com/ashlar-dev/storage/resourcepb"
)

// WriteCAS implements storage.Backend.
func (b *Backend) WriteCAS(ctx context.Context, res *resourcepb.Resource) (*resourcepb.Resource, error) {
	k, err := check.Resource(res, b.opts.MaxSize)
	if err != nil {
		return nil, err
	}
	o, err := newWrite(k, res)
	if err != nil {
		return nil, err
	}
	if err := b.submit(ctx, o); err != nil {
		return nil, fmt.Errorf("write %v: %w", k, err)
	}
	out := message.Clone(res)
	out.Version = versionText(o.token)
	return out, nil
}

// DeleteCAS implements storage.Backend.
func (b *Backend) DeleteCAS(ctx context.Context, id *resourcepb.ID, version string) error {
	k, err := check.ID("id", id)
	if err != nil {
		return err
	}
	o := newOp(opDelete, k, id.GetUid(), version)
	if o.expected == nil {
		o.expected = []byte{}
	}
	if err := b.submit(ctx, o); err != nil {
		return fmt.Errorf("delete %v: %w", k, err)
	}
	return nil
}

func (b *Backend) submit(ctx context.Context, o *op) error {
	ctx, done, err := b.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	_, err = b.writes.Do(ctx, o)
	return b.late(err)
}

type writeMember = batch.Call[*op, struct{}]

// shortWait is how long a batch waits for a row that another transaction holds, before its members go on alone. It keeps one
// transaction that stays open from holding up the writes of other keys.
const (
	shortWait = "100ms"
	longWait  = "0" // without end
)

func (b *Backend) writeBatch(ctx context.Context, calls []*writeMember) {
	ops := make([]*op, len(calls))
	for i, c := range calls {
		ops[i] = c.Request
	}
	again, err := b.carryOut(ctx, ops, shortWait)
	b.answered()
	if slices.ContainsFunc(ops, func(o *op) bool { return o.applied }) {
		b.changed(ops)
	}
	if isLockTimeout(err) || len(ops) > 1 && err != nil && !errors.Is(err, storage.ErrInconsistent) && fateOf(err) == refused {
		again, err = ops, nil
	}
	for _, c := range calls {
		o := c.Request
		if err == nil && slices.Contains(again, o) {
			c.Later()
			b.running.Go(func() { b.writeAlone(c) })
			continue
		}
		if err != nil {
			c.Done(struct{}{}, err)
			continue
		}
		_, err := o.decide()
		c.Done(struct{}{}, err)
	}
}

// writeAlone carries out one operation by itself, for as long as its caller waits.
func (b *Backend) writeAlone(c *writeMember) {
	ctx := c.Context()
	o := c.Request
	select {
	case b.alone <- struct{}{}:
		defer func() { <-b.alone }()
	case <-ctx.Done():
		c.Done(struct{}{}, inconsistent(ctx, nil))
		return
	case <-b.life.Done():
		c.Done(struct{}{}, storage.ErrClosed)
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(b.life, cancel)() // a caller that waits for a row would hold up Close
	for {
		again, err := b.carryOut(ctx, []*op{o}, longWait)
		if err == nil && len(again) > 0 {
			continue
		}
		if err == nil {
			_, err = o.decide()
		}
		b.answered()
		if o.applied {
			b.changed([]*op{o})
		}
		c.Done(struct{}{}, err)
		return
	}
}

func isLockTimeout(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == lockNotAvailable
}

// carryOut carries out operations on different keys, each by itself, and finds out what became of them also where an answer
// is lost. It returns those that have to be tried again because their rows changed under them. If a row is held by others
// for longer than wait, nothing is done and isLockTimeout knows the error.
func (b *Backend) carryOut(ctx context.Context, ops []*op, wait string) (again []*op, err error) {
	slices.SortFunc(ops, func(x, y *op) int { return bytes.Compare(x.keyBytes, y.keyBytes) })
	left := ops
	lost := lostAnswer{since: b.seen.Load()}
	try := func(ctx context.Context) error {
		if lost.happened {
			if err := b.settle(ctx, &lost, left); err != nil {
				return err
			}
			left = unapplied(left)
			if len(left) == 0 {
				return nil
			}
		}
		err := b.attempt(ctx, &lost, func(conn *pgx.Conn) error { return b.apply(ctx, conn, left, wait) })
		if err != nil {
			disclaim(left) // rows come before the commit: they say nothing if it failed
			if isLockTimeout(err) {
				return failed{err}
			}
			return err
		}
		if lost.happened {
			// What failed may have failed because of its own earlier attempt, committed since.
			return b.settle(ctx, &lost, unapplied(left))
		}
		return nil
	}
	if wait == longWait {
		err = b.attempts(ctx, try)
	} else {
		err = b.shortAttempts(ctx, try)
	}
	if err != nil {
		return nil, err
	}
	for _, o := range ops {
		if retry, _ := o.decide(); retry {
			again = append(again, o)
		}
	}
	return again, nil
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

// disclaim forgets what an attempt said.
func disclaim(ops []*op) {
	for _, o := range ops {
		o.applied, o.found, o.logged = false, cas.Stored{}, logged{}
	}
}

// apply sends one statement.
func (b *Backend) apply(ctx context.Context, conn *pgx.Conn, ops []*op, wait string) error {
	if len(ops) == 1 && ops[0].kind == opWrite && ops[0].expected != nil {
		return b.update(ctx, conn, ops[0], wait)
	}
	n := len(ops)
	keys, uids, expected := make([][]byte, n), make([][]byte, n), make([][]byte, n)
	tokens, groupVersions, owners, data := make([][]byte, n), make([][]byte, n), make([][]byte, n), make([][]byte, n)
	kinds := make([]int16, n)
	updates := true
	for i, o := range ops {
		updates = updates && o.kind == opWrite && o.expected != nil
		keys[i], kinds[i], uids[i], expected[i] = o.keyBytes, o.kind, []byte(o.uid), o.expected
		tokens[i], groupVersions[i], owners[i], data[i] = o.token, o.groupVersion, o.owner, o.data
	}
	sql, args := b.sql.apply, []any{keys, kinds, uids, expected, tokens, groupVersions, owners, data, wait}
	if updates {
		sql, args = b.sql.updateMany, []any{keys, uids, expected, tokens, groupVersions, owners, data, wait}
	}
	rows, err := conn.Query(ctx, sql, args...)
	if err != nil {
		return err
	}
	var place int
	var applied bool
	var stored storedRow
	var xid pgtype.Uint64
	var seq pgtype.Int8
	_, err = pgx.ForEachRow(rows, []any{&place, &applied, &stored.uid, &stored.version, &stored.xmin, &seq, &xid}, func() error {
		if place < 1 || place > n {
			return fmt.Errorf("the database answered for operation %d of %d", place, n)
		}
		ops[place-1].answer(applied, &stored, seq.Int64, xid.Uint64)
		b.saw(xid.Uint64)
		return nil
	})
	return err
}

func (b *Backend) update(ctx context.Context, conn *pgx.Conn, o *op, wait string) error {
	var xid pgtype.Uint64
	var seq pgtype.Int8
	var stored storedRow
	err := conn.QueryRow(ctx, b.sql.updateOne,
		o.keyBytes, []byte(o.uid), o.expected, o.token, o.groupVersion, o.owner, o.data, wait).
		Scan(&xid, &seq, &stored.uid, &stored.version, &stored.xmin)
	if err != nil {
		return err
	}
	o.answer(xid.Valid, &stored, seq.Int64, xid.Uint64)
	b.saw(xid.Uint64)
	return nil
}
