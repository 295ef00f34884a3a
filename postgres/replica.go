package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
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

// walPosition is how far a server's log is.
type walPosition struct{ timeline, bytes int64 }

func (p walPosition) atLeast(o walPosition) bool {
	return p.timeline == o.timeline && p.bytes >= o.bytes
}

// replica answers eventual reads where it is fresh enough; nil: there is none.
type replica struct {
	pool    *pgxpool.Pool
	primary *pgxpool.Pool
	sql     *statements

	mu          sync.Mutex
	floor       walPosition // that it must have reached to answer
	answerCount uint64      // counts answers of the primary
	floorCount  uint64      // those that floor is beyond
}

// recordIssue notes that the primary gives something out, which the replica must not fall behind.
func (r *replica) recordIssue() {
	if r != nil {
		r.mu.Lock()
		r.answerCount++
		r.mu.Unlock()
	}
}

// requiredPosition returns the place that the replica must have reached, whether that is known, and the number of answers so far.
func (r *replica) requiredPosition() (at walPosition, known bool, given uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.floor, r.answerCount == r.floorCount, r.answerCount
}

// raiseFloor notes that everything given out before the count was taken is in the log before at.
func (r *replica) raiseFloor(count uint64, at walPosition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.floorCount = max(r.floorCount, count)
	if at.timeline != r.floor.timeline || at.atLeast(r.floor) {
		r.floor = at
	}
}

// fetchRequired returns the place that the replica must have reached, for which it asks the primary how far its log is where that is not
// known; false if it is not known even so.
func (r *replica) fetchRequired(ctx context.Context) (at walPosition, known bool) {
	at, known, given := r.requiredPosition()
	if known {
		return at, true
	}
	err := r.primary.QueryRow(ctx, r.sql.primaryPosition).
		Scan(&at.timeline, &at.bytes)
	if err != nil {
		return walPosition{}, false
	}
	r.raiseFloor(given, at)
	at, known, _ = r.requiredPosition()
	return at, known
}

// replicaTimeout is how long a replica may take before the primary is asked.
const replicaTimeout = 2 * time.Second

// query runs a query on the replica if that has all that this handle has given out; false where it does not, or fails. The place is
// asked for in a statement of its own, before the one that reads: each statement has its own snapshot, so the data is not older than
// the place.
func (r *replica) query(ctx context.Context, sql string, arguments []any, read func(pgx.Rows) error) bool {
	if r == nil {
		return false
	}
	floor, known := r.fetchRequired(ctx)
	if !known {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, replicaTimeout)
	defer cancel()
	var batch pgx.Batch
	batch.Queue(readCommitted)
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
