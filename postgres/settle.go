package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/ashlar-dev/storage"
)

// settler finds out what became of attempts whose answer was lost.
type settler struct{ *database }

// settle finds out which mutations took effect in an attempt whose answer was lost, and makes sure that they are durable. With
// final set, those that did not never will.
func (s *settler) settle(ctx context.Context, ms []*mutation, final bool) error {
	if len(ms) == 0 {
		return nil
	}
	return s.query(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		if err := s.tookEffect(ctx, conn, ms); err != nil {
			return err
		}
		left := withLost(ms)
		waited := false
		for _, m := range left {
			for _, a := range m.lost {
				if a.ended || !final && a.lock == 0 {
					continue
				}
				if err := s.awaitEnd(ctx, conn, a); err != nil {
					return err
				}
				waited = true
			}
		}
		if !waited {
			return nil
		}
		return s.tookEffect(ctx, conn, left)
	})
}

// tookEffect marks the mutations whose tokens are found.
func (s *settler) tookEffect(ctx context.Context, conn *pgx.Conn, ms []*mutation) error {
	keys, tokens := make([][]byte, len(ms)), make([][]byte, len(ms))
	byToken := make(map[string]*mutation, len(ms))
	floor := ms[0].lost[0].floor
	for i, m := range ms {
		keys[i], tokens[i] = m.keyBytes, m.token
		byToken[string(m.token)] = m
		for _, a := range m.lost {
			floor = min(floor, a.floor)
		}
	}
	on := s.sessions.of(conn)
	on.warned = false
	var pruned int64
	var token []byte
	var proof pgtype.Text
	var revision pgtype.Int8
	found := make(map[*mutation]int64)
	rows, _ := conn.Query(ctx, s.sql.tokens, keys, tokens, floor) // an error shows in the rows
	_, err := pgx.ForEachRow(rows, []any{&pruned, &token, &revision, &proof}, func() error {
		if m := byToken[string(token)]; m != nil {
			found[m] = revision.Int64
		}
		return nil
	})
	if err != nil {
		return err // what was found counts only with this statement's commit
	}
	if on.warned {
		return fmt.Errorf("the look for its outcome was cut off: %w", errUnsure)
	}
	for m, revision := range found {
		m.setFound(revision)
	}
	if pruned > floor && len(found) < len(ms) {
		return permanent{fmt.Errorf("%w: %w", storage.ErrInconsistent, errUnknown)}
	}
	return nil
}

// awaitEnd waits until an attempt is over for good. One that holds a lock of its own is revoked, as soon as it does not run: it does
// nothing if it arrives later. One without holds a lock on the table, from before it looks at the time; it is over when its time has
// passed and all are who held one then.
func (s *settler) awaitEnd(ctx context.Context, conn *pgx.Conn, a *attempt) error {
	overdue := false
	var writers []string // nil: not known yet
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 250*time.Millisecond) {
		var err error
		switch {
		case a.lock != 0:
			a.ended, err = s.revoke(ctx, conn, a)
		case !overdue:
			err = conn.QueryRow(ctx, s.sql.overdue, a.expires).Scan(&overdue)
		}
		if err == nil && overdue {
			err = conn.QueryRow(ctx, s.sql.writers, writers).Scan(&writers)
			a.ended = err == nil && len(writers) == 0
		}
		if err != nil || a.ended {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// revoke has an attempt do nothing from now on, and reports whether it could: not while the attempt runs.
func (s *settler) revoke(ctx context.Context, conn *pgx.Conn, a *attempt) (revoked bool, err error) {
	on := s.sessions.of(conn)
	on.warned = false
	if err := conn.QueryRow(ctx, s.sql.revoke, a.lock).Scan(&revoked); err != nil {
		return false, err
	}
	if on.warned {
		return false, fmt.Errorf("the revocation was cut off: %w", errUnsure)
	}
	return revoked, nil
}
