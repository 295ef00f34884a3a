package postgres

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// maxQuickCreations is the maximum number of creations in a transaction, which lock their keys. A server has space for a limited number of locks.
const maxQuickCreations = 64

// maxQuickBytes is the maximum size of what a transaction sends after its first statement, which the server executes when it arrives. If the sender
// is frozen or the link fails before the rest has arrived, the locks and the note of the transaction remain until the server notices. So the rest must
// leave the sender at once.
const maxQuickBytes = 64 << 10

// quickGroups splits mutations into groups. A group is one attempt of sendQuick. The attempt of creations can be revoked. The other quick
// statements do not know of revocations, so they are another attempt. Creations that are too large for a group are in none.
func quickGroups(ms []*mutation) (groups [][]*mutation) {
	changes := filterMutations(ms, func(m *mutation) bool { return !m.creates() })
	deletions := filterMutations(changes, func(m *mutation) bool { return m.kind == kindDelete })
	creations := filterMutations(ms, (*mutation).creates)
	if len(deletions) < len(changes) && quickSize(deletions) > maxQuickBytes {
		groups = append(groups, filterMutations(changes, (*mutation).updates), deletions)
	} else if len(changes) > 0 {
		groups = append(groups, changes)
	}
	for some := range slices.Chunk(creations, maxQuickCreations) {
		if quickSize(some) <= maxQuickBytes {
			groups = append(groups, some)
		}
	}
	return groups
}

// quickSize returns about the size of mutations in a statement.
func quickSize(ms []*mutation) (bytes int) {
	for _, m := range ms {
		bytes += len(m.keyBytes) + len(m.Uid) + len(m.expectedVersion) + len(m.token) + len(m.groupVersion) + len(m.owner) + len(m.data)
	}
	return bytes
}

// sendQuick sends a group of quickGroups in short statements. They apply the mutations that neither conflict nor wait for a lock; the others have no
// result.
func (s *sender) sendQuick(ctx context.Context, ms []*mutation) error {
	a, run := &attempt{}, s.quickChanges
	if ms[0].creates() {
		a, run = &attempt{lock: rand.Int64()}, s.quickCreations
	}
	return s.attempt(ctx, ms, a, func(ctx context.Context, conn *pgx.Conn, a *attempt, ms []*mutation) error {
		began := time.Now()
		err := run(ctx, conn, a, ms)
		for _, m := range ms {
			if !m.isApplied { // the answer does not say whether the statement was late
				m.travel = max(m.travel, time.Since(began))
			}
		}
		return err
	})
}

// quickStatement is a statement with its mutations. A statement without mutations has no answer.
type quickStatement struct {
	ms   []*mutation
	sql  string
	args []any
}

// quickChanges sets the results of the updates and deletions that it has applied. It leaves the others unchanged.
func (s *sender) quickChanges(ctx context.Context, conn *pgx.Conn, a *attempt, ms []*mutation) error {
	var statements []quickStatement
	settled := needsFinality(ms)
	switch updates := filterMutations(ms, (*mutation).updates); len(updates) {
	case 0:
	case 1:
		m := updates[0]
		statements = append(statements, quickStatement{updates, s.sql.quickOne.text(settled),
			[]any{m.keyBytes, []byte(m.Uid), m.expectedVersion, m.token, a.expires, a.floor, m.groupVersion, m.owner, m.data}})
	default:
		in := columnsOf(updates)
		statements = append(statements, quickStatement{updates, s.sql.quickMany.text(settled),
			[]any{in.keys, in.uids, in.expectedVersions, in.tokens, a.expires, a.floor, in.groupVersions, in.owners, in.data}})
	}
	if deletions := filterMutations(ms, func(m *mutation) bool { return m.kind == kindDelete }); len(deletions) > 0 {
		in := columnsOf(deletions)
		statements = append(statements, quickStatement{deletions, s.sql.quickDeletions.text(settled),
			[]any{in.keys, in.uids, in.expectedVersions, in.tokens, a.expires, a.floor}})
	}
	return runQuick(ctx, conn, statements)
}

// quickCreations sets the results of the creations that it has applied. It leaves the others unchanged.
func (s *sender) quickCreations(ctx context.Context, conn *pgx.Conn, a *attempt, ms []*mutation) error {
	in := columnsOf(ms)
	err := runQuick(ctx, conn, []quickStatement{
		{nil, s.sql.quickLocks, []any{a.lock, in.keys, a.expires, a.floor}},
		{ms, s.sql.quickCreations.text(needsFinality(ms)), []any{a.lock, in.keys, in.uids, in.tokens, in.groupVersions, in.owners, in.data}},
		{nil, s.sql.quickProof, []any{in.keys, in.tokens}},
	})
	if hasCode(err, codeNotANumber) {
		return fmt.Errorf("%w: %w", errCreatedMeanwhile, err)
	}
	return err
}

// runQuick executes statements in one transaction and one round trip.
func runQuick(ctx context.Context, conn *pgx.Conn, statements []quickStatement) error {
	if len(statements) == 1 {
		rows, _ := conn.Query(ctx, statements[0].sql, statements[0].args...) // an error shows in the rows
		return statements[0].read(rows)
	}
	var queries pgx.Batch
	for _, s := range statements {
		query := queries.Queue(s.sql, s.args...)
		if s.ms != nil {
			query.Query(s.read)
		}
	}
	return conn.SendBatch(ctx, &queries).Close()
}

// read sets the results of the mutations that a statement has applied.
func (s *quickStatement) read(rows pgx.Rows) error {
	var token []byte
	var revision, created, writes int64
	var settled bool
	next := 0 // the rows are mostly in the order of the mutations
	_, err := pgx.ForEachRow(rows, []any{&token, &revision, &created, &writes, &settled}, func() error {
		for range s.ms {
			m := s.ms[next]
			next = (next + 1) % len(s.ms)
			if bytes.Equal(m.token, token) {
				m.setApplied(revision, 0, created, writes)
				m.isFinal = settled
				break
			}
		}
		return nil
	})
	return err
}
