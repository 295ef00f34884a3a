package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
)

var errHeldBack = errors.New("a commit under way holds back the newest changes")

// known is what the log knows of a number, everything up to which is final.
type known struct {
	final    int64
	oldest   int64
	at       position // of the last change up to the number
	followed bool     // there is a change of that number, or after it
}

// lookUpNumber waits until everything up to a number is final, 0 for the last number that was drawn, and returns what the log knows of
// it, or of the number up to which all is final where that is lower. Meanwhile it takes no connection. A server that crashed may have drawn fewer
// numbers since; nobody was told of the others.
func (h *history) lookUpNumber(ctx context.Context, revision int64) (k known, err error) {
	for pause := time.Millisecond; ; pause = min(2*pause, maxPause) {
		reached := false
		err := h.retry(ctx, func(ctx context.Context) error {
			return h.query(ctx, func(ctx context.Context, conn *pgx.Conn) (err error) {
				reached, err = h.lookUpOnce(ctx, conn, &revision, &k)
				return err
			})
		})
		if err != nil || reached {
			return k, err
		}
		if err := h.pause(ctx, pause, errHeldBack); err != nil {
			return known{}, err
		}
	}
}

// lookUpOnce asks how far the history is final, and then about the number, if all is final up to it. The transaction keeps both on one
// server: what is final on one that a fail-over has replaced may still be under way on the next one.
func (h *history) lookUpOnce(ctx context.Context, conn *pgx.Conn, revision *int64, k *known) (reached bool, err error) {
	var asked pgx.Batch
	var last int64
	asked.Queue(readCommitted)
	asked.Queue(h.sql.final).QueryRow(func(row pgx.Row) (err error) {
		last, k.final, err = scanFinal(row)
		return err
	})
	if err := conn.SendBatch(ctx, &asked).Close(); err != nil {
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
	var found pgx.Batch
	found.Queue(h.sql.numbered, min(*revision, k.final)).QueryRow(func(row pgx.Row) error {
		return row.Scan((*[16]byte)(&id), &k.oldest, &change, &place, &piece, &k.followed)
	})
	found.Queue(`commit`)
	if err := conn.SendBatch(ctx, &found).Close(); err != nil {
		return false, err
	}
	k.at = position{revision: change.Int64, place: place.Int32}
	copy(k.at.piece[:], piece)
	if id != *h.id.Load() {
		h.id.Store(&id)
		return false, errOther
	}
	return true, nil
}

// An empty store has a revision too, the one before the first change.
const firstRevision = 1

// Revisions implements driver.Historian.
func (r *reader) Revisions(ctx context.Context) (oldest, newest int64, err error) {
	k, err := r.history.lookUpNumber(ctx, 0)
	if err != nil {
		return 0, 0, err
	}
	r.replica.answered()
	return max(k.oldest, firstRevision), r.RevisionOf(k.at), nil
}

// RevisionOf implements driver.Historian. Only numbers of changes that were read are revisions: others may be drawn again.
func (*reader) RevisionOf(at position) int64 { return max(at.revision, firstRevision) }

// PositionAt implements driver.Historian.
func (r *reader) PositionAt(ctx context.Context, revision int64) (position, error) {
	k, err := r.history.lookUpNumber(ctx, revision)
	switch {
	case err != nil:
		return position{}, err
	case revision < max(k.oldest, firstRevision):
		return position{}, fmt.Errorf("%w: the oldest revision is %d, asked for was %d", storage.ErrCompacted, max(k.oldest, firstRevision), revision)
	case revision > max(k.final, firstRevision) || !k.followed && revision > firstRevision:
		return position{}, fmt.Errorf("%w: the newest is %d, asked for was %d", storage.ErrFutureRevision, r.RevisionOf(k.at), revision)
	}
	r.replica.answered()
	return k.at, nil
}

// Compact implements driver.Historian. The oldest revision is always that of a change.
func (r *reader) Compact(ctx context.Context, revision int64) error {
	at, err := r.PositionAt(ctx, revision)
	if errors.Is(err, storage.ErrCompacted) || err == nil && at.revision == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	return r.retry(ctx, func(ctx context.Context) error {
		return r.query(ctx, func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, r.sql.compact, at.revision, at.place, at.piece[:])
			return err
		})
	})
}

// Before implements driver.Historian.
func (r *reader) Before(ctx context.Context, events []*event) (versions []*driver.Version, err error) {
	revisions, places := make([]int64, len(events)), make([]int32, len(events))
	for i, ev := range events {
		revisions[i], places[i] = ev.At.revision, ev.At.place
	}
	var n int
	var id pgtype.UUID
	var oldest int64
	var piece, version, data []byte
	var previous, created, modified, writes pgtype.Int8
	begin := func() { versions = make([]*driver.Version, len(events)) }
	into := []any{&n, &id, &oldest, &piece, &previous, &version, &data, &created, &modified, &writes}
	err = r.lookUp(ctx, begin, r.sql.before, []any{revisions, places}, into, func() error {
		ev := events[n-1]
		if ev.At.revision <= oldest {
			return permanent{errPruned}
		}
		if err := r.history.check(id.Bytes, oldest, &ev.At, piece); err != nil || !previous.Valid {
			return settled(err)
		}
		if !modified.Valid {
			return permanent{errPruned}
		}
		versions[n-1] = &driver.Version{
			Key: ev.Key.Bytes(), Version: []byte(versionText(version)), Data: data,
			CreateRevision: created.Int64, ModRevision: modified.Int64, Writes: writes.Int64,
		}
		return nil
	})
	return versions, err
}
