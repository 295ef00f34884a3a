package postgres

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/ashlar-dev/storage/driver"
)

// maxAge is how old may be what is known of a session.
const maxAge = time.Minute

// attempt is one statement that writes, and whose answer may be lost.
//
// Every mutation carries a random token, which it leaves in the resource and in the log of changes. So a later statement can
// tell whether an earlier one took effect, whatever happened to the resource since. An update or a deletion can then be sent
// again at once: a version never comes back, so it takes effect once at most, also if the lost attempt is still on its way. What
// can create something could happen twice, on both sides of somebody's deletion. Such a statement holds a lock of its own while
// it runs and commits, and does nothing if it was revoked before; so it can be given up, also behind a pooler that delivers it
// whenever it likes, and whatever the clocks say.
type attempt struct {
	lock    int64 // an advisory lock; 0: it holds none
	expires time.Time
	floor   int64 // its numbers are higher: it does nothing where that is still to be drawn
	ended   bool  // it was seen to be over for good
}

// sender sends mutations, in one statement each time.
type sender struct{ *database }

// send sends one statement, and takes note if its answer is lost. What can only replace something, or delete it, has statements of its
// own, which need no snapshot after their locks.
func (s *sender) send(ctx context.Context, ms []*mutation, atomic bool) error {
	if len(ms) == 0 {
		return nil
	}
	if err := s.watchdog.admit(ctx); err != nil {
		return err
	}
	conn, err := primary(ctx, s.main)
	if err != nil {
		return err
	}
	defer conn.Release()
	on := s.sessions.of(conn.Conn())
	// What is known of the session must not grow as old as the changes that are deleted, also where somebody compacts.
	if on.floor == 0 || time.Since(on.asked) > min(s.opts.Retention/4, maxAge) {
		err := s.watched(ctx, conn, func(ctx context.Context, conn *pgx.Conn) error { return on.ask(ctx, conn, s.sql) })
		if err != nil {
			return notSent{err}
		}
	}
	slow := travel(ms)
	a := &attempt{expires: on.expiry(slow), floor: on.floor}
	if atomic || !lone(ms) && slices.ContainsFunc(ms, func(m *mutation) bool { return !m.updates() }) {
		a.lock = rand.Int64()
	}
	on.warned = false
	began := time.Now()
	ctx, done := s.watchdog.watch(ctx, conn.Conn(), true, slow)
	switch {
	case a.lock != 0:
		err = s.apply(ctx, conn.Conn(), a, ms, atomic)
	case lone(ms):
		err = s.changeOne(ctx, conn.Conn(), a, ms[0])
	default:
		err = s.updateMany(ctx, conn.Conn(), a, ms)
	}
	fate := fateOf(err)
	done(fate == unknown)
	if err == nil && on.warned {
		fate, err = unknown, fmt.Errorf("the commit was cut off: %w", errUnsure)
	} else if fate == unknown || isLate(err) {
		for _, m := range ms {
			m.travel = max(m.travel, time.Since(began))
		}
	}
	if isLate(err) {
		on.floor = 0 // its clock and the floor have to be read again
	}
	for _, m := range ms {
		if err == nil {
			on.floor, m.session, m.pooled = max(on.floor, m.revision), on.serial, on.pooled
			continue
		}
		m.reset() // rows come before the commit
		if fate == unknown {
			m.lost = append(m.lost, a)
		}
	}
	return err
}

// maxTravel bounds how much longer than the first attempt a later one may take.
const maxTravel = time.Minute

// travel is how much longer than usual the next attempt of mutations may be on its way: it has to be more than an earlier one took
// in vain, since the link may be slow for so many bytes.
func travel(ms []*mutation) time.Duration {
	var longest time.Duration
	for _, m := range ms {
		longest = max(longest, m.travel)
	}
	return min(2*longest, maxTravel)
}

// lone reports whether there is a statement for this mutation alone, which can take effect once at most.
func lone(ms []*mutation) bool { return len(ms) == 1 && (ms[0].updates() || ms[0].kind == kindDelete) }

func (s *sender) changeOne(ctx context.Context, conn *pgx.Conn, a *attempt, m *mutation) error {
	text, args := s.sql.deleteOne, []any{m.keyBytes, []byte(m.Uid), m.expected, m.token, a.expires, m.Exclusive, a.floor}
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
		m.settled = settled.Bool
	case late.Bool:
		return errLate
	default:
		m.setStored(uid, version, false)
	}
	return nil
}

func (s *sender) updateMany(ctx context.Context, conn *pgx.Conn, a *attempt, ms []*mutation) error {
	in := columnsOf(ms)
	var place int
	var uid, version []byte
	var revision, created, writes pgtype.Int8
	var busy bool
	var settled pgtype.Bool
	answered := false
	rows, _ := conn.Query(ctx, s.sql.updateMany, // an error shows in the rows
		in.keys, in.uids, in.expected, in.tokens, in.groupVersions, in.owners, in.data, a.expires, alone(ms), a.floor)
	_, err := pgx.ForEachRow(rows, []any{&place, &uid, &version, &revision, &busy, &created, &writes, &settled}, func() error {
		answered = true
		if m := ms[place-1]; revision.Valid {
			m.setApplied(revision.Int64, 0, created.Int64, writes.Int64)
			m.settled = settled.Bool
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

// alone reports whether somebody needs to know of a change that nothing before it is to come.
func alone(ms []*mutation) bool {
	return slices.ContainsFunc(ms, func(m *mutation) bool { return m.Exclusive })
}

// outcomeBusy is what the function apply answers for a key that another transaction holds.
const outcomeBusy = 0

func (s *sender) apply(ctx context.Context, conn *pgx.Conn, a *attempt, ms []*mutation, atomic bool) error {
	in := columnsOf(ms)
	note, noted := guardColumns(driver.GuardOf(ctx))
	var place int
	var outcome int16
	var uid, version []byte
	var revision, created, writes pgtype.Int8
	var rank pgtype.Int4
	var settled pgtype.Bool
	rows, _ := conn.Query(ctx, s.sql.apply, a.lock, a.expires, atomic, // an error shows in the rows
		in.keys, in.kinds, in.uids, in.expected, in.tokens, in.groupVersions, in.owners, in.data, note, noted, alone(ms), a.floor)
	answered := false
	_, err := pgx.ForEachRow(rows, []any{&place, &outcome, &uid, &version, &revision, &rank, &created, &writes, &settled}, func() error {
		answered = true
		if m := ms[place-1]; revision.Valid {
			m.setApplied(revision.Int64, rank.Int32, created.Int64, writes.Int64)
			m.settled = settled.Bool
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

// guardColumns are a guard as arguments of the function apply. A revision that is none matches nothing.
func guardColumns(g *driver.Guard) (note pgtype.Text, revision pgtype.UUID) {
	if g == nil {
		return note, revision
	}
	_ = revision.Scan(g.Revision)
	return pgtype.Text{String: g.Note, Valid: true}, revision
}

// columns are mutations as the arrays that the statements take.
type columns struct {
	keys, uids, expected, tokens, groupVersions, owners, data [][]byte
	kinds                                                     []int16
}

func columnsOf(ms []*mutation) *columns {
	n := len(ms)
	room := make([][]byte, 7*n)
	column := func(i int) [][]byte { return room[i*n : (i+1)*n : (i+1)*n] }
	c := &columns{column(0), column(1), column(2), column(3), column(4), column(5), column(6), make([]int16, n)}
	for i, m := range ms {
		c.keys[i], c.uids[i], c.expected[i], c.kinds[i] = m.keyBytes, []byte(m.Uid), m.expected, m.kind
		c.tokens[i], c.groupVersions[i], c.owners[i], c.data[i] = m.token, m.groupVersion, m.owner, m.data
	}
	return c
}
