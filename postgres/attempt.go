package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/ashlar-dev/storage"
)

// attempt is one statement that writes, and whose answer may be lost.
//
// Every operation carries a random token, which it leaves in the resource and in the log of changes. So a later statement can
// tell whether an earlier one took effect, whatever happened to the resource since. An update or a deletion can then be sent
// again at once: a version never comes back, so it takes effect once at most, also if the lost attempt is still on its way. What
// can create something could happen twice, on both sides of somebody's deletion. Such a statement holds a lock of its own while
// it runs and commits, and does nothing if it begins late; so it can be waited for, also through a pooler that delivers it
// whenever it likes.
type attempt struct {
	lock    int64 // an advisory lock; 0: it holds none
	expires time.Time
	floor   int64 // its numbers are higher
	ended   bool  // it was seen to be over for good
}

// send runs one statement that writes on a connection, and takes note if its answer is lost.
func (b *handle) send(ctx context.Context, ops []*op, locks bool, f func(ctx context.Context, conn *pgx.Conn, a *attempt) error) error {
	if err := b.watchdog.admit(ctx); err != nil {
		return err
	}
	conn, err := primary(ctx, b.pool)
	if err != nil {
		return err
	}
	defer conn.Release()
	s := b.sessions.of(conn.Conn())
	// What is known of the session must not grow as old as the changes that are deleted.
	if s.floor == 0 || time.Since(s.met) > b.opts.Retention/4 {
		if err := b.meet(ctx, conn.Conn(), s); err != nil {
			return notSent{err}
		}
	}
	slow := travel(ops)
	a := &attempt{expires: s.expiry(slow), floor: s.floor}
	if locks {
		a.lock = rand.Int64()
	}
	s.warned = false
	began := time.Now()
	ctx, done := b.watchdog.watch(ctx, conn.Conn(), true, slow)
	err = f(ctx, conn.Conn(), a)
	fate := committed
	if err != nil {
		fate = fateOf(err)
	}
	done(fate == unknown)
	if isLate(err) || fate == unknown {
		for _, o := range ops {
			o.travel = max(o.travel, time.Since(began))
		}
	}
	switch {
	case isLate(err):
		s.floor = 0 // its clock has to be read again
	case fate == unknown || fate == committed && s.warned:
		for _, o := range ops {
			o.forget() // rows come before the commit
			o.lost = append(o.lost, a)
		}
		if err == nil {
			err = fmt.Errorf("the commit was cut off: %w", errUnsure)
		}
	case err != nil:
		for _, o := range ops {
			o.forget()
		}
	default:
		for _, o := range ops {
			s.floor, o.session, o.pooled = max(s.floor, o.revision), s.serial, s.pooled
		}
	}
	return err
}

// maxTravel bounds how much longer than the first attempt a later one may take.
const maxTravel = time.Minute

// travel is how much longer than usual the next attempt of operations may be on its way: it has to be more than an earlier one took
// in vain, since the link may be slow for so many bytes.
func travel(ops []*op) time.Duration {
	var longest time.Duration
	for _, o := range ops {
		longest = max(longest, o.travel)
	}
	return min(2*longest, maxTravel)
}

// meet has a session learn about its server.
func (b *handle) meet(ctx context.Context, conn *pgx.Conn, s *session) error {
	ctx, done := b.watchdog.watch(ctx, conn, false, 0)
	defer done(false)
	return s.meet(ctx, conn, &b.sql)
}

// notSent is an error of what precedes the statement that counts.
type notSent struct{ error }

func (e notSent) Unwrap() error { return e.error }

var (
	// errUnsure says that a statement took effect, and that it is not known to be durable.
	errUnsure = errors.New("the server did not wait until it was durable")
	// errUnknown says that the history which would show what became of an attempt is gone.
	errUnknown = errors.New("an answer was lost, and the changes that would tell the outcome have been deleted")
)

// withLost returns the operations that had an attempt whose answer was lost.
func withLost(ops []*op) []*op {
	var some []*op
	for _, o := range ops {
		if len(o.lost) > 0 && !o.applied {
			some = append(some, o)
		}
	}
	return some
}

// settle finds out which operations took effect in an attempt whose answer was lost, and makes sure that they are durable. With
// final set, those that did not never will.
func (b *handle) settle(ctx context.Context, ops []*op, final bool) error {
	if len(ops) == 0 {
		return nil
	}
	conn, err := primary(ctx, b.pool)
	if err != nil {
		return err
	}
	defer conn.Release()
	ctx, done := b.watchdog.watch(ctx, conn.Conn(), false, 0)
	defer done(false)
	if err := b.tookEffect(ctx, conn.Conn(), ops); err != nil {
		return err
	}
	left := withLost(ops)
	waited := false
	for _, o := range left {
		for _, a := range o.lost {
			if a.ended || !final && a.lock == 0 {
				continue
			}
			if err := b.awaitEnd(ctx, conn.Conn(), a); err != nil {
				return err
			}
			waited = true
		}
	}
	if !waited {
		return nil
	}
	return b.tookEffect(ctx, conn.Conn(), left)
}

// tookEffect marks the operations whose tokens are found.
func (b *handle) tookEffect(ctx context.Context, conn *pgx.Conn, ops []*op) error {
	keys, tokens := make([][]byte, len(ops)), make([][]byte, len(ops))
	byToken := make(map[string]*op, len(ops))
	floor := ops[0].lost[0].floor
	for i, o := range ops {
		keys[i], tokens[i] = o.keyBytes, o.token
		byToken[string(o.token)] = o
		for _, a := range o.lost {
			floor = min(floor, a.floor)
		}
	}
	s := b.sessions.of(conn)
	s.warned = false
	rows, err := conn.Query(ctx, b.sql.tokens, keys, tokens, floor)
	if err != nil {
		return err
	}
	var horizon int64
	var token []byte
	var proof pgtype.Text
	var found []*op
	_, err = pgx.ForEachRow(rows, []any{&horizon, &token, &proof}, func() error {
		if o := byToken[string(token)]; o != nil {
			found = append(found, o)
		}
		return nil
	})
	if err != nil {
		return err // what was found counts only with this statement's commit
	}
	if s.warned {
		return fmt.Errorf("the look for its outcome was cut off: %w", errUnsure)
	}
	for _, o := range found {
		o.done(0, 0)
	}
	if horizon > floor && len(found) < len(ops) {
		return failed{fmt.Errorf("%w: %w", storage.ErrInconsistent, errUnknown)}
	}
	return nil
}

// awaitEnd waits until an attempt is over for good: its time has passed, and it holds its lock no more. One without a lock of its own
// holds one on the table, from before it looks at the time; it is over when all are who held one then.
func (b *handle) awaitEnd(ctx context.Context, conn *pgx.Conn, a *attempt) error {
	overdue := false
	var writers []string // nil: not known yet
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 250*time.Millisecond) {
		var err error
		if !overdue {
			err = conn.QueryRow(ctx, b.sql.overdue, a.expires, a.lock).Scan(&overdue)
			a.ended = overdue && a.lock != 0
		}
		if err == nil && overdue && !a.ended {
			err = conn.QueryRow(ctx, b.sql.writers, writers).Scan(&writers)
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

// Errors that apply raises.
const (
	late       = "AS002"
	overlapped = "AS003"
)

// errLate says what late says, where a statement answers so by answering nothing.
var errLate = errors.New("the statement arrived after its time")

func isLate(err error) bool { return hasCode(err, late) || errors.Is(err, errLate) }

func isLockTimeout(err error) bool { return hasCode(err, lockNotAvailable) }

func hasCode(err error, code string) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == code
}
