package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/batch"
)

// finalOn returns the last number of the final history, and the run of the server that answered.
func (h *history) finalOn(ctx context.Context, conn *pgx.Conn) (final int64, server string, err error) {
	var queries pgx.Batch
	queries.Queue(readCommitted)
	queries.Queue(h.sql.final).QueryRow(func(row pgx.Row) (err error) {
		_, final, err = scanFinal(row)
		return err
	})
	queries.Queue(h.sql.whichRun).QueryRow(func(row pgx.Row) error { return row.Scan(&server) })
	queries.Queue(`commit`)
	err = conn.SendBatch(ctx, &queries).Close()
	return final, server, err
}

// queueLast queues queries for the run of the server, and for the position of the last change up to a number.
func (h *history) queueLast(queries *pgx.Batch, final int64, here *string, at *position) {
	queries.Queue(h.sql.whichRun).QueryRow(func(row pgx.Row) error { return row.Scan(here) })
	queries.Queue(h.sql.last, final).QueryRow(func(row pgx.Row) (err error) {
		*at, err = h.scanLast(row)
		return err
	})
}

// newest returns the position of the last final change. The transaction sends both queries to one server.
func (h *history) newest(ctx context.Context, db interface {
	BeginTx(ctx context.Context, opts pgx.TxOptions) (pgx.Tx, error)
}) (at position, err error) {
	err = pgx.BeginTxFunc(ctx, db, pgx.TxOptions{BeginQuery: readCommitted}, func(tx pgx.Tx) error {
		_, final, err := scanFinal(tx.QueryRow(ctx, h.sql.final))
		if err == nil {
			at, err = h.last(ctx, tx, final)
		}
		return err
	})
	return at, err
}

// last returns the position of the last change up to a number, which must be final.
func (h *history) last(ctx context.Context, q querier, final int64) (position, error) {
	return h.scanLast(q.QueryRow(ctx, h.sql.last, final))
}

// A snapshot may include changes above others that are not final yet. Its position contains ranges of their numbers, and a digest
// of their tokens as a proof: after a fail-over that lost them, the numbers belong to other changes, or to none.

// maxAboveFrontier is the maximum number of changes in a snapshot above the last final one. More accumulate only behind a commit that
// stalls for minutes; such a snapshot is retried. The digest of so many changes takes about a second.
const maxAboveFrontier = 1_000_000

var errCommitStall = errors.New("too many changes wait behind a stalled commit")

// addAboveFrontier adds the changes of a snapshot above the final number to its position.
func (h *history) addAboveFrontier(ctx context.Context, conn querier, at *position, final int64) (err error) {
	count := 0
	at.aboveFrontierDigest, err = h.digest(ctx, conn, numberRange{final + 1, math.MaxInt64 - 1}, maxAboveFrontier+1, func(revision int64) bool {
		count++
		if n := len(at.aboveFrontier); n > 0 && at.aboveFrontier[n-1].to >= revision-1 {
			at.aboveFrontier[n-1].to = revision
		} else {
			at.aboveFrontier = append(at.aboveFrontier, numberRange{revision, revision})
		}
		return true
	})
	if err == nil && count > maxAboveFrontier {
		err = notSent{errCommitStall} // it is retried
	}
	return err
}

// checkAboveFrontier returns errForked unless all changes that a position includes above the frontier still exist.
func (h *history) checkAboveFrontier(ctx context.Context, conn querier, at *position) error {
	if len(at.aboveFrontier) == 0 {
		return nil
	}
	// A snapshot contained a change of each number, so the changes must exist. The count is checked as well, because the digest of
	// no changes is no secret.
	budget := int64(maxAboveFrontier)
	for _, s := range at.aboveFrontier {
		if s.to-s.from >= budget {
			return errForked
		}
		budget -= s.to - s.from + 1
	}
	missing := maxAboveFrontier - budget
	var last int64
	piece, err := h.digest(ctx, conn, numberRange{at.aboveFrontier[0].from, at.lastAboveFrontier()}, math.MaxInt64, func(revision int64) bool {
		ahead := at.isAboveFrontier(revision)
		if ahead && revision != last {
			last = revision
			missing--
		}
		return ahead
	})
	if err == nil && (missing != 0 || piece != at.aboveFrontierDigest) {
		err = errForked
	}
	return err
}

// digest returns a prefix of the digest of the changes in a range that take accepts.
func (h *history) digest(
	ctx context.Context, q querier, in numberRange, limit int64, take func(revision int64) bool,
) (piece [tokenPrefixSize]byte, err error) {
	hash := sha256.New()
	var revision int64
	var token []byte
	rows, _ := q.Query(ctx, h.sql.tokensIn, in.from, in.to, limit) // an error shows in the rows
	_, err = pgx.ForEachRow(rows, []any{&revision, &token}, func() error {
		if take(revision) {
			hash.Write(token)
		}
		return nil
	})
	copy(piece[:], hash.Sum(nil))
	return piece, err
}

// checkPresent returns errForked unless the change at a position exists, in a page that was just read or in the database. It returns
// nil if retention may have deleted the change, because this proves no fork.
func (h *history) checkPresent(ctx context.Context, conn *pgx.Conn, read *page, at *position) error {
	i, among := slices.BinarySearchFunc(read.changes, at, func(c change, at *position) int { return compare(&c.at, at) })
	if among && read.changes[i].at.tokenPrefix == at.tokenPrefix {
		return nil
	}
	rows, _ := conn.Query(ctx, h.sql.changes, at.revision, at.index, 0, pageBytes)
	_, _, err := h.scan(rows, at, 0)
	if errors.Is(err, errPruned) {
		return nil
	}
	return err
}

// scanLast scans the row of the statement last.
func (h *history) scanLast(row pgx.Row) (at position, err error) {
	var id driver.StoreID
	var oldest int64
	var revision pgtype.Int8
	var place pgtype.Int4
	var piece []byte
	if err := row.Scan((*[16]byte)(&id), &oldest, &revision, &place, &piece); err != nil {
		return position{}, err
	}
	return h.lastAt(id, oldest, revision, place, piece)
}

// lastAt returns the position of a change, or of none, if the store still contains it.
func (h *history) lastAt(id driver.StoreID, oldest int64, revision pgtype.Int8, place pgtype.Int4, piece []byte) (position, error) {
	at := position{revision: revision.Int64, index: place.Int32}
	copy(at.tokenPrefix[:], piece)
	return at, h.check(id, oldest, &at, piece)
}

// frontier proves for strong answers that the tip of a snapshot is final. The tip is the highest number that the snapshot shows. A
// strong answer is the state of the store at its tip. The base is a number that is known to be final, with its change. If no number
// between the base and the tip is missing, the tip is final too, and it becomes the base.
type frontier struct {
	*history
	base  atomic.Pointer[position]
	batch *batch.Batcher[tipRequest, struct{}]
}

// tipRequest is a wait for a tip. If thorough is set, the notes of the writers are read: a missing number may have been rolled back.
type tipRequest struct {
	tip      int64
	thorough bool
}

func newFrontier(h *history) *frontier {
	f := &frontier{history: h}
	f.base.Store(&position{})
	f.batch = batch.New(batch.Options[tipRequest]{MaxCalls: 1024, Direct: true}, f.checkBatch)
	return f
}

// baseArguments returns the arguments of the function tip.
func (f *frontier) baseArguments() (revision int64, index int32, token []byte) {
	base := f.base.Load()
	return base.revision, base.index, base.tokenPrefix[:]
}

// noteTip takes a result of the function tip, and returns the tip as proven or as unproven. Both are 0 if the statement did not read
// the tip, or if the log is empty. A proven tip above the base becomes the base.
func (f *frontier) noteTip(result []byte) (proven, unproven int64) {
	if len(result) != 8+tokenPrefixSize {
		return 0, 0
	}
	tip := int64(binary.BigEndian.Uint64(result))
	if tip < 0 {
		return 0, -tip
	}
	if base := f.base.Load(); base.revision < tip {
		f.base.CompareAndSwap(base, &position{revision: tip, tokenPrefix: [tokenPrefixSize]byte(result[8:])})
	}
	return tip, 0
}

// maxTipSteps is the number of changes after the base that the function tip reads.
const maxTipSteps = 1024

// needsNotes reports whether the function tip cannot prove a tip: there is no base, or it is too far below the tip.
func (f *frontier) needsNotes(tip int64) bool {
	base := f.base.Load().revision
	return base == 0 || tip-base >= maxTipSteps
}

// quickChecks is the number of checks of a tip without the notes. A pending commit is mostly visible by then.
const quickChecks = 6

// await waits until a visible number, and so all lower ones, are final. It holds no connection while it waits.
func (f *frontier) await(ctx context.Context, tip int64) error {
	began := time.Now()
	for n, pause := 0, 100*time.Microsecond; ; n, pause = n+1, min(2*pause, maxPause) {
		_, err := f.batch.Do(ctx, tipRequest{tip, n >= quickChecks || f.needsNotes(tip)})
		if !errors.Is(err, errPendingCommit) {
			return err
		}
		err = fmt.Errorf("the history is blocked for %v: revision %d is visible, %w", time.Since(began).Round(time.Millisecond), tip, err)
		if err := f.pause(ctx, pause, err); err != nil {
			return err
		}
	}
}

func (f *frontier) checkBatch(ctx context.Context, calls []*batch.Call[tipRequest, struct{}]) {
	var highest tipRequest
	for _, c := range calls {
		highest.tip, highest.thorough = max(highest.tip, c.Request.tip), highest.thorough || c.Request.thorough
	}
	var final int64
	pending := errPendingCommit
	err := f.retry(ctx, func(ctx context.Context) error {
		return f.query(ctx, func(ctx context.Context, conn *pgx.Conn) (err error) {
			if highest.thorough {
				final, pending, err = f.checkNotes(ctx, conn, highest.tip)
			} else {
				final, err = f.checkTip(ctx, conn)
			}
			return err
		})
	})
	for _, c := range calls {
		if err == nil && final < c.Request.tip {
			c.Done(struct{}{}, pending)
		} else {
			c.Done(struct{}{}, err)
		}
	}
}

// checkTip returns the tip if it is proven without the notes, otherwise 0.
func (f *frontier) checkTip(ctx context.Context, conn *pgx.Conn) (final int64, err error) {
	base, index, token := f.baseArguments()
	var tip []byte
	err = conn.QueryRow(ctx, f.sql.tip, base, index, token).Scan(&tip)
	final, _ = f.noteTip(tip)
	return final, err
}

// checkNotes reads how far the history is final from the notes of the writers. If that is below the tip, pending names the writer with
// the lowest note.
func (f *frontier) checkNotes(ctx context.Context, conn *pgx.Conn, tip int64) (final int64, pending, err error) {
	var k finalState
	reached, err := f.queryFinal(ctx, conn, &tip, &k)
	if err == nil && reached {
		f.base.Store(&k.at)
		return tip, nil, nil
	}
	pending = errPendingCommit
	if err == nil {
		var w noteHolder
		if conn.QueryRow(ctx, f.sql.pendingWriter).Scan(&w.pid, &w.event, &w.role) == nil {
			pending = fmt.Errorf("%w above revision %d (server process %d, %s, role %q)", errPendingCommit, k.final, w.pid, w.event, w.role)
		}
	}
	return k.final, pending, err
}

var errPendingCommit = errors.New("the newest changes wait for a pending commit")

// finalState is the state of the log at a number whose change and all earlier changes are final.
type finalState struct {
	final  int64
	oldest int64
	at     position // position of the last change up to the number
	exists bool     // there is a change with that number or a higher one
}

// awaitFinal waits until all changes up to a number are final, or up to the last number drawn if revision is 0. It returns the
// state of the log at that number, or at the last final number if that is lower. It holds no connection while it waits. A server
// that crashed may have drawn fewer numbers since; the others were not acknowledged.
func (h *history) awaitFinal(ctx context.Context, revision int64) (k finalState, err error) {
	for pause := time.Millisecond; ; pause = min(2*pause, maxPause) {
		reached := false
		err := h.retry(ctx, func(ctx context.Context) error {
			return h.query(ctx, func(ctx context.Context, conn *pgx.Conn) (err error) {
				reached, err = h.queryFinal(ctx, conn, &revision, &k)
				return err
			})
		})
		if err != nil || reached {
			return k, err
		}
		if err := h.pause(ctx, pause, errPendingCommit); err != nil {
			return finalState{}, err
		}
	}
}

// queryFinal reads how far the history is final, and then the state at the number if all changes up to it are final. The
// transaction sends both queries to one server: after a fail-over, a number that was final on the old server may be pending on the
// new one.
func (h *history) queryFinal(ctx context.Context, conn *pgx.Conn, revision *int64, k *finalState) (reached bool, err error) {
	var queries pgx.Batch
	var last int64
	queries.Queue(readCommitted)
	queries.Queue(h.sql.final).QueryRow(func(row pgx.Row) (err error) {
		last, k.final, err = scanFinal(row)
		return err
	})
	if err := conn.SendBatch(ctx, &queries).Close(); err != nil {
		return false, err
	}
	if *revision == 0 {
		*revision = last
	}
	if reached = k.final >= min(*revision, last); !reached {
		_, err := conn.Exec(ctx, `commit`)
		return false, err
	}
	var id driver.StoreID
	var change pgtype.Int8
	var place pgtype.Int4
	var piece []byte
	var stateQueries pgx.Batch
	stateQueries.Queue(h.sql.lastBefore, min(*revision, k.final)).QueryRow(func(row pgx.Row) error {
		return row.Scan((*[16]byte)(&id), &k.oldest, &change, &place, &piece, &k.exists)
	})
	stateQueries.Queue(`commit`)
	if err := conn.SendBatch(ctx, &stateQueries).Close(); err != nil {
		return false, err
	}
	k.at = position{revision: change.Int64, index: place.Int32}
	copy(k.at.tokenPrefix[:], piece)
	if id != *h.id.Load() {
		h.id.Store(&id)
		return false, errOther
	}
	return true, nil
}

// firstRevision is the revision of an empty store, before its first change.
const firstRevision = 1
