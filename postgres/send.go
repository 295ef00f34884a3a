package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
)

// maxAge is the maximum age of cached session state.
const maxAge = time.Minute

// sender sends mutations, in one statement at a time.
type sender struct {
	*database
	blocker atomic.Pointer[noteBlocker] // found after the last statement that waited too long for a lock; nil after a change
}

// blockerTTL is how long a blocker that was found is considered present. The statements of waiting writers find it again more often.
const blockerTTL = 10 * time.Second

// noteBlocker is a session that keeps writers from taking their notes. It does not belong to a store.
type noteBlocker struct {
	pid     int // of its server process
	role    string
	foundAt time.Time
}

// currentBlocker returns the session that blocks writers, nil for none.
func (s *sender) currentBlocker() *noteBlocker {
	if b := s.blocker.Load(); b != nil && time.Since(b.foundAt) < blockerTTL {
		return b
	}
	return nil
}

// findBlocker records the session that blocks writers, if there is one.
func (s *sender) findBlocker(ctx context.Context, conn *pgxpool.Conn) {
	b := noteBlocker{foundAt: time.Now()}
	err := s.withWatchdog(ctx, conn, func(ctx context.Context, conn *pgx.Conn) error {
		return conn.QueryRow(ctx, s.sql.noteBlocker).Scan(&b.pid, &b.role)
	})
	switch {
	case err == nil:
		s.blocker.Store(&b)
	case errors.Is(err, pgx.ErrNoRows): // the statement waited for something else
		s.blocker.Store(nil)
	}
}

// statement is a call of a statement that carries out mutations as one attempt.
type statement func(ctx context.Context, conn *pgx.Conn, a *attempt, ms []*mutation) error

// send sends mutations in one statement: each independently, or all or none. Updates and deletions have statements of their own,
// which need no snapshot after their locks. So do transactions of updates and checks.
func (s *sender) send(ctx context.Context, ms []*mutation, atomic bool) error {
	switch {
	case atomic && replaces(ms) && driver.GuardOf(ctx) == nil:
		return s.attempt(ctx, ms, &attempt{}, s.updateTx)
	case atomic || !lone(ms) && slices.ContainsFunc(ms, func(m *mutation) bool { return !m.updates() }):
		return s.attempt(ctx, ms, &attempt{lock: rand.Int64()}, func(ctx context.Context, conn *pgx.Conn, a *attempt, ms []*mutation) error {
			return s.apply(ctx, conn, a, ms, atomic)
		})
	case lone(ms):
		return s.attempt(ctx, ms, &attempt{}, func(ctx context.Context, conn *pgx.Conn, a *attempt, ms []*mutation) error {
			return s.changeOne(ctx, conn, a, ms[0])
		})
	}
	return s.attempt(ctx, ms, &attempt{}, s.updateMany)
}

// attempt runs a statement, and records the attempt if its answer is lost.
func (s *sender) attempt(ctx context.Context, ms []*mutation, a *attempt, run statement) error {
	if len(ms) == 0 {
		return nil
	}
	if err := s.watchdog.admit(ctx); err != nil {
		return err
	}
	conn, err := s.acquire(ctx, s.main)
	if err != nil {
		return err
	}
	defer conn.Release()
	on := s.sessions.of(conn.Conn())
	// The cached state must be younger than the changes that are deleted, even if a caller compacts the store.
	if on.floor == 0 || time.Since(on.clockReadAt) > min(s.opts.Retention/4, maxAge) {
		err := s.withWatchdog(ctx, conn, func(ctx context.Context, conn *pgx.Conn) error { return on.ask(ctx, conn, s.sql) })
		if err != nil {
			return notSent{err}
		}
	}
	slow := extraTravel(ms)
	a.expires, a.floor = on.expiry(slow), on.floor
	on.hasWarning = false
	began := time.Now()
	call := ctx
	ctx, done := s.watchdog.watch(ctx, conn.Conn(), true, slow)
	err = run(ctx, conn.Conn(), a, ms)
	outcome := classify(err)
	done(outcome == outcomeUnknown)
	if err == nil && on.hasWarning {
		outcome, err = outcomeUnknown, fmt.Errorf("commit: %w", errUnsure)
	} else if outcome == outcomeUnknown || isLate(err) {
		for _, m := range ms {
			m.travel = max(m.travel, time.Since(began))
		}
	}
	if outcome == outcomeUnknown {
		s.telemetry.countLost(ctx, len(ms), err)
	}
	if isLockTimeout(err) {
		s.findBlocker(call, conn)
	} else if err == nil && slices.ContainsFunc(ms, (*mutation).hasEffect) { // other statements take no note
		s.blocker.Store(nil)
	}
	if isLate(err) {
		on.floor = 0 // read the clock and the floor again
	}
	for _, m := range ms {
		if err == nil {
			on.floor, m.session, m.viaPooler = max(on.floor, m.revision), on.serial, on.viaPooler
			continue
		}
		m.reset() // rows arrive before the commit
		if outcome == outcomeUnknown {
			m.lostAttempts = append(m.lostAttempts, a)
		}
	}
	return err
}

// lone reports whether there is a statement for this single mutation, which takes effect at most once.
func lone(ms []*mutation) bool { return len(ms) == 1 && (ms[0].updates() || ms[0].kind == kindDelete) }

func (s *sender) changeOne(ctx context.Context, conn *pgx.Conn, a *attempt, m *mutation) error {
	text, args := s.sql.deleteOne, []any{m.keyBytes, []byte(m.Uid), m.expectedVersion, m.token, a.expires, m.Exclusive, a.floor}
	if m.kind == kindWrite {
		text, args = s.sql.updateOne, append(args, m.groupVersion, m.owner, m.data)
	}
	var revision, created, writes pgtype.Int8
	var uid, version []byte
	var late, settled pgtype.Bool
	err := conn.QueryRow(ctx, text, args...).
		Scan(&revision, &uid, &version, &late, &created, &writes, &settled)
	switch {
	case err != nil:
		return err
	case revision.Valid:
		m.setApplied(revision.Int64, 0, created.Int64, writes.Int64)
		m.isFinal = settled.Bool
	case late.Bool:
		return errLate
	default:
		m.setStored(uid, version, false)
	}
	return nil
}

func (s *sender) updateMany(ctx context.Context, conn *pgx.Conn, a *attempt, ms []*mutation) error {
	in := columnsOf(ms)
	return s.update(ctx, conn, ms, nil, s.sql.updateMany,
		in.keys, in.uids, in.expectedVersions, in.tokens, in.groupVersions, in.owners, in.data, a.expires, needsFinality(ms), a.floor)
}

// updateTx carries out a transaction that [replaces] resources.
func (s *sender) updateTx(ctx context.Context, conn *pgx.Conn, a *attempt, ms []*mutation) error {
	in, ranks, updates := columnsOf(ms), make([]pgtype.Int4, len(ms)), int32(0)
	for i, m := range ms {
		if m.kind == kindWrite {
			ranks[i] = pgtype.Int4{Int32: updates, Valid: true}
			updates++
		}
	}
	return s.update(ctx, conn, ms, ranks, s.sql.updateTx,
		in.keys, in.uids, in.expectedVersions, in.tokens, in.groupVersions, in.owners, in.data, a.expires, needsFinality(ms), a.floor, ranks)
}

// update runs a statement of several updates. ranks are the places of the changes in their commit, nil if each is a commit of its own.
func (s *sender) update(ctx context.Context, conn *pgx.Conn, ms []*mutation, ranks []pgtype.Int4, sql string, args ...any) error {
	var place int
	var uid, version []byte
	var revision, created, writes pgtype.Int8
	var busy bool
	var settled pgtype.Bool
	answered := false
	rows, _ := conn.Query(ctx, sql, args...) // an error shows in the rows
	_, err := pgx.ForEachRow(rows, []any{&place, &uid, &version, &revision, &busy, &created, &writes, &settled}, func() error {
		answered = true
		if m := ms[place-1]; revision.Valid {
			rank := int32(0)
			if ranks != nil {
				rank = ranks[place-1].Int32
			}
			m.setApplied(revision.Int64, rank, created.Int64, writes.Int64)
			m.isFinal = settled.Bool
		} else {
			m.setStored(uid, version, busy)
		}
		return nil
	})
	if err == nil && !answered {
		return errLate
	}
	return err
}

// needsFinality reports whether a caller needs to know that no earlier change is pending.
func needsFinality(ms []*mutation) bool {
	return slices.ContainsFunc(ms, func(m *mutation) bool { return m.Exclusive })
}

// outcomeBusy is the outcome of the function apply for a key that another transaction holds.
const outcomeBusy = 0

func (s *sender) apply(ctx context.Context, conn *pgx.Conn, a *attempt, ms []*mutation, atomic bool) error {
	in := columnsOf(ms)
	sql := s.sql.apply
	if driver.GuardOf(ctx) != nil {
		sql = s.sql.applyGuarded
	}
	note, noted := guardColumns(driver.GuardOf(ctx))
	var place int
	var outcome int16
	var uid, version []byte
	var revision, created, writes pgtype.Int8
	var rank pgtype.Int4
	var settled pgtype.Bool
	rows, _ := conn.Query(ctx, sql, a.lock, a.expires, atomic, // an error shows in the rows
		in.keys, in.kinds, in.uids, in.expectedVersions, in.tokens, in.groupVersions, in.owners, in.data, note, noted, needsFinality(ms), a.floor)
	answered := false
	_, err := pgx.ForEachRow(rows, []any{&place, &outcome, &uid, &version, &revision, &rank, &created, &writes, &settled}, func() error {
		answered = true
		if m := ms[place-1]; revision.Valid {
			m.setApplied(revision.Int64, rank.Int32, created.Int64, writes.Int64)
			m.isFinal = settled.Bool
		} else {
			m.setStored(uid, version, outcome == outcomeBusy)
		}
		return nil
	})
	if err == nil && !answered {
		return errLate
	}
	return err
}

// guardColumns converts a guard to arguments of the function apply. A malformed revision matches nothing.
func guardColumns(g *driver.Guard) (note pgtype.Text, revision pgtype.UUID) {
	if g == nil {
		return note, revision
	}
	_ = revision.Scan(g.Revision)
	return pgtype.Text{String: g.Note, Valid: true}, revision
}

// columns are mutations as arrays, for the statements.
type columns struct {
	keys, uids, expectedVersions, tokens, groupVersions, owners, data [][]byte
	kinds                                                             []int16
}

func columnsOf(ms []*mutation) *columns {
	n := len(ms)
	room := make([][]byte, 7*n)
	column := func(i int) [][]byte { return room[i*n : (i+1)*n : (i+1)*n] }
	c := &columns{column(0), column(1), column(2), column(3), column(4), column(5), column(6), make([]int16, n)}
	for i, m := range ms {
		c.keys[i], c.uids[i], c.expectedVersions[i], c.kinds[i] = m.keyBytes, []byte(m.Uid), m.expectedVersion, m.kind
		c.tokens[i], c.groupVersions[i], c.owners[i], c.data[i] = m.token, m.groupVersion, m.owner, m.data
	}
	return c
}

// settler resolves attempts whose answer was lost.
type settler struct{ *database }

// settle finds out which mutations took effect in a lost attempt, and makes sure that they are durable. If final is set, it waits
// until the others cannot take effect any more.
func (s *settler) settle(ctx context.Context, ms []*mutation, final bool) error {
	if len(ms) == 0 {
		return nil
	}
	return s.query(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		if err := s.findTokens(ctx, conn, ms); err != nil {
			return err
		}
		pending := withLost(ms)
		s.telemetry.appliedWrites.Add(ctx, float64(len(ms)-len(pending)))
		waited := 0
		for _, m := range pending {
			for _, a := range m.lostAttempts {
				if a.isDone || !final && a.lock == 0 {
					continue
				}
				if err := s.awaitEnd(ctx, conn, a); err != nil {
					return err
				}
				waited++
			}
		}
		if waited == 0 {
			return nil
		}
		if err := s.findTokens(ctx, conn, pending); err != nil {
			return err
		}
		applied := len(pending) - len(withLost(pending))
		s.telemetry.appliedWrites.Add(ctx, float64(applied))
		s.telemetry.unappliedWrites.Add(ctx, float64(max(0, waited-applied)))
		return nil
	})
}

// findTokens marks the mutations whose tokens are in the store or in the log as applied.
func (s *settler) findTokens(ctx context.Context, conn *pgx.Conn, ms []*mutation) error {
	keys, tokens := make([][]byte, len(ms)), make([][]byte, len(ms))
	byToken := make(map[string]*mutation, len(ms))
	floor := ms[0].lostAttempts[0].floor
	for i, m := range ms {
		keys[i], tokens[i] = m.keyBytes, m.token
		byToken[string(m.token)] = m
		for _, a := range m.lostAttempts {
			floor = min(floor, a.floor)
		}
	}
	on := s.sessions.of(conn)
	on.hasWarning = false
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
		return err // the result is valid only with the commit of this statement
	}
	if on.hasWarning {
		return fmt.Errorf("read the outcome of an attempt: %w", errUnsure)
	}
	for m, revision := range found {
		m.setFound(revision)
	}
	if pruned > floor && len(found) < len(ms) {
		return permanent{fmt.Errorf("%w: %w", storage.ErrInconsistent, errUnknown)}
	}
	return nil
}

// awaitEnd waits until an attempt cannot take effect any more. An attempt with a lock is revoked as soon as it does not run, and
// does nothing if it arrives later. An attempt without a lock holds a lock on the table before it reads the clock. It has ended
// when its time has passed, and all transactions that held such a lock then have ended.
func (s *settler) awaitEnd(ctx context.Context, conn *pgx.Conn, a *attempt) error {
	overdue := false
	var writers []string // nil: not read yet
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 250*time.Millisecond) {
		var err error
		switch {
		case a.lock != 0:
			a.isDone, err = s.revoke(ctx, conn, a)
		case !overdue:
			err = conn.QueryRow(ctx, s.sql.overdue, a.expires).Scan(&overdue)
		}
		if err == nil && overdue {
			err = conn.QueryRow(ctx, s.sql.writers, writers).Scan(&writers)
			a.isDone = err == nil && len(writers) == 0
		}
		if err != nil || a.isDone {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// revoke revokes an attempt, unless it is running.
func (s *settler) revoke(ctx context.Context, conn *pgx.Conn, a *attempt) (revoked bool, err error) {
	on := s.sessions.of(conn)
	on.hasWarning = false
	if err := conn.QueryRow(ctx, s.sql.revoke, a.lock).Scan(&revoked); err != nil {
		return false, err
	}
	if on.hasWarning {
		return false, fmt.Errorf("revoke an attempt: %w", errUnsure)
	}
	return revoked, nil
}
