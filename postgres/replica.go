package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// An eventual read may be answered by a replica, but never goes back in time: its answer is not older than a previous answer of
// this handle, nor than an event delivered by one of the handle's watches.
//
// The position of a replica in the write-ahead log (an LSN) shows which changes it has. The handle keeps the position that covers
// all of its answers. It reads the position of the replica first, and then the data. After a write, or an answer of the primary,
// the position is unknown until the next eventual read asks the primary for it.
//
// Positions are comparable on one timeline only: each promotion starts a new timeline, and a server that does not follow it
// continues in a log that is not the log of the primary.

// walPosition is a position in the write-ahead log of a server.
type walPosition struct{ timeline, bytes int64 }

func (p walPosition) atLeast(o walPosition) bool {
	return p.timeline == o.timeline && p.bytes >= o.bytes
}

// replica answers eventual reads if it is fresh enough. A nil replica answers none.
type replica struct {
	pool    *pgxpool.Pool
	primary *pgxpool.Pool
	sql     *statements

	mu          sync.Mutex
	floor       walPosition // minimum position for an answer
	answerCount uint64      // number of answers of the primary
	floorCount  uint64      // number of those answers that floor covers
}

// recordIssue records that the primary answers a caller. The replica must not be older than this answer.
func (r *replica) recordIssue() {
	if r != nil {
		r.mu.Lock()
		r.answerCount++
		r.mu.Unlock()
	}
}

// requiredPosition returns the minimum position of the replica, whether it covers all answers, and the number of answers.
func (r *replica) requiredPosition() (at walPosition, known bool, answers uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.floor, r.answerCount == r.floorCount, r.answerCount
}

// raiseFloor records that the first count answers are in the log before a position.
func (r *replica) raiseFloor(count uint64, at walPosition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.floorCount = max(r.floorCount, count)
	if at.timeline != r.floor.timeline || at.atLeast(r.floor) {
		r.floor = at
	}
}

// fetchRequired returns the minimum position of the replica. If it is unknown, fetchRequired asks the primary for its position;
// known is false if that fails.
func (r *replica) fetchRequired(ctx context.Context) (at walPosition, known bool) {
	at, known, answers := r.requiredPosition()
	if known {
		return at, true
	}
	err := r.primary.QueryRow(ctx, r.sql.primaryPosition).
		Scan(&at.timeline, &at.bytes)
	if err != nil {
		return walPosition{}, false
	}
	r.raiseFloor(answers, at)
	at, known, _ = r.requiredPosition()
	return at, known
}

// replicaTimeout is the maximum time of a read on the replica before the primary is read.
const replicaTimeout = 2 * time.Second

// query runs a query on the replica. It returns false if the replica is older than an answer of this handle, or fails. The
// position is read before the query, in a statement of its own: each statement has its own snapshot, so the data is not older
// than the position. The position is read again after the query, because later answers must not be older than this one.
func (r *replica) query(ctx context.Context, sql string, arguments []any, read func(pgx.Rows) error) bool {
	floor, known := r.fetchRequired(ctx)
	if !known {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, replicaTimeout)
	defer cancel()
	var batch pgx.Batch
	batch.Queue(readReplica)
	batch.Queue(r.sql.replicaPosition)
	batch.Queue(sql, arguments...)
	batch.Queue(r.sql.replicaPosition)
	batch.Queue(`commit`)
	results := r.pool.SendBatch(ctx, &batch)
	defer func() { _ = results.Close() }() // an error shows in the reads before it
	if _, err := results.Exec(); err != nil {
		return false
	}
	before, ok := readWALPosition(results)
	if !ok || !before.atLeast(floor) {
		return false
	}
	rows, err := results.Query()
	if err != nil || read(rows) != nil {
		return false
	}
	after, ok := readWALPosition(results)
	if !ok || after.timeline != before.timeline {
		return false
	}
	if _, err := results.Exec(); err != nil {
		return false
	}
	r.raiseFloor(0, after) // another replica must not be behind this answer
	return true
}

func readWALPosition(results pgx.BatchResults) (p walPosition, ok bool) {
	err := results.QueryRow().Scan(&ok, &p.timeline, &p.bytes)
	return p, ok && err == nil
}
