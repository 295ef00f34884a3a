package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage/driver"
)

// Eventual reads may go to a replica, but never back in time: an answer must not be older than an earlier one of this handle,
// nor than an event that one of its watches has delivered.
//
// A place in the server's log of writes (an LSN) tells what a replica has. The backend keeps the place by which all that it
// has given out was in the log, and asks a replica for its own place first, then for the data. After a write, or an answer
// of the primary, the place is not known until somebody asks; the next eventual read does, by the way.
//
// Places can be compared on one timeline only: each promotion begins another one, and a server that did not follow goes on in a log
// that is not the primary's.

// place is how far a server's log is.
type place struct{ timeline, bytes int64 }

func (p place) atLeast(o place) bool { return p.timeline == o.timeline && p.bytes >= o.bytes }

// freshness is what a replica must have to answer.
type freshness struct {
	mu    sync.Mutex
	floor place
	given uint64 // counts answers of the primary
	known uint64 // those that floor is beyond
}

// gave notes that the primary has answered, or is about to.
func (f *freshness) gave() {
	f.mu.Lock()
	f.given++
	f.mu.Unlock()
}

// needed returns the place that a replica must have reached; false if it is not known.
func (f *freshness) needed() (place, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.floor, f.given == f.known
}

func (f *freshness) answers() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.given
}

// learned notes that everything given out before the count was taken is in the log before at.
func (f *freshness) learned(count uint64, at place) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.known = max(f.known, count)
	if at.timeline != f.floor.timeline || at.atLeast(f.floor) {
		f.floor = at
	}
}

// answered notes that the primary gives something out, where there is a replica that must not fall behind it.
func (b *handle) answered() {
	if b.opts.Replica != nil {
		b.fresh.gave()
	}
}

// learn asks the primary how far its log is.
func (b *handle) learn(ctx context.Context) error {
	count := b.fresh.answers()
	var at place
	err := b.pool.QueryRow(ctx, `
select ('x' || left(pg_walfile_name(at), 8))::bit(32)::bigint, (at - '0/0')::bigint from pg_current_wal_insert_lsn() as at`).
		Scan(&at.timeline, &at.bytes)
	if err == nil {
		b.fresh.learned(count, at)
	}
	return err
}

// readReplica reads a key from the replica; false where there is none, or it is not fresh enough, or it fails.
func (b *handle) readReplica(ctx context.Context, k []byte) (row stored, fresh bool) {
	fresh = b.fromReplica(ctx, b.sql.readOne, []any{k}, func(r pgx.Rows) error {
		var err error
		row, err = scanOne(r)
		return err
	})
	return row, fresh
}

// listReplica lists from the replica, likewise.
func (b *handle) listReplica(ctx context.Context, f *driver.Filter, rows driver.Rows) (fresh bool) {
	return b.fromReplica(ctx, b.sql.list, listArguments(f), func(found pgx.Rows) error { return addAll(rows, found) })
}

// replicaPatience is how long a replica may take before the primary is asked.
const replicaPatience = 2 * time.Second

// fromReplica runs a query on the replica if that has all that this handle has given out. The place is asked for in a
// statement of its own, before the one that reads: each statement has its own snapshot, so the data is not older than the
// place.
func (b *handle) fromReplica(ctx context.Context, sql string, arguments []any, read func(pgx.Rows) error) bool {
	if b.opts.Replica == nil {
		return false
	}
	if _, known := b.fresh.needed(); !known {
		if b.learn(ctx) != nil {
			return false
		}
	}
	floor, known := b.fresh.needed()
	if !known {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, replicaPatience)
	defer cancel()
	const place = `
select pg_is_in_recovery(), greatest(timeline_id, min_recovery_end_timeline)::bigint, (coalesce(pg_last_wal_replay_lsn(), '0/0') - '0/0')::bigint
from pg_control_checkpoint(), pg_control_recovery()`
	var batch pgx.Batch
	batch.Queue(readCommitted)
	batch.Queue(place)
	batch.Queue(sql, arguments...)
	batch.Queue(place)
	batch.Queue(`commit`)
	results := b.opts.Replica.SendBatch(ctx, &batch)
	defer func() { _ = results.Close() }() // an error shows in the reads before it
	if _, err := results.Exec(); err != nil {
		return false
	}
	before, ok := readPlace(results)
	if !ok || !before.atLeast(floor) {
		return false
	}
	rows, err := results.Query()
	if err != nil || read(rows) != nil {
		return false
	}
	after, ok := readPlace(results)
	if !ok || after.timeline != before.timeline {
		return false
	}
	if _, err := results.Exec(); err != nil {
		return false
	}
	b.fresh.learned(0, after) // another replica must not be behind this answer
	return true
}

func readPlace(results pgx.BatchResults) (p place, ok bool) {
	err := results.QueryRow().Scan(&ok, &p.timeline, &p.bytes)
	return p, ok && err == nil
}
