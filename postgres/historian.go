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

// await waits until everything up to a number is final, 0 for the last number that was drawn, and returns the number up to which all
// is. Meanwhile it takes no connection. A server that crashed may have drawn fewer numbers since; nobody was told of the others.
func (h *history) await(ctx context.Context, revision int64) (final int64, err error) {
	for pause := time.Millisecond; ; pause = min(2*pause, maxPause) {
		var last int64
		err := h.retry(ctx, func(ctx context.Context) error {
			return h.query(ctx, func(ctx context.Context, conn *pgx.Conn) (err error) {
				last, final, err = scanFinal(conn.QueryRow(ctx, h.sql.final))
				return err
			})
		})
		if revision == 0 {
			revision = last
		}
		if err != nil || final >= min(revision, last) {
			return final, err
		}
		if err := h.pause(ctx, pause, errHeldBack); err != nil {
			return 0, err
		}
	}
}

// known is what the log knows of a number.
type known struct {
	oldest   int64
	at       position // of the last change up to the number
	followed bool     // there is a change of that number, or after it
}

// lookUpNumber asks the log for a number, up to which everything is final.
func (h *history) lookUpNumber(ctx context.Context, number int64) (k known, err error) {
	err = h.retry(ctx, func(ctx context.Context) error {
		return h.query(ctx, func(ctx context.Context, conn *pgx.Conn) error {
			k = known{}
			var id driver.StoreID
			var revision pgtype.Int8
			var place pgtype.Int4
			var piece []byte
			err := conn.QueryRow(ctx, h.sql.numbered, number).Scan((*[16]byte)(&id), &k.oldest, &revision, &place, &piece, &k.followed)
			if err != nil {
				return err
			}
			k.at = position{revision: revision.Int64, place: place.Int32}
			copy(k.at.piece[:], piece)
			if id != *h.id.Load() {
				h.id.Store(&id)
				return errOther
			}
			return nil
		})
	})
	return k, err
}

// newestFinal is the last change that is visible, everything before which is too: all that was acknowledged before the call is part
// of that.
func (h *history) newestFinal(ctx context.Context) (known, error) {
	final, err := h.await(ctx, 0)
	if err != nil {
		return known{}, err
	}
	return h.lookUpNumber(ctx, final)
}

// An empty store has a revision too, the one before the first change.
const firstRevision = 1

// Revisions implements driver.Historian.
func (r *reader) Revisions(ctx context.Context) (oldest, newest int64, err error) {
	k, err := r.history.newestFinal(ctx)
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
	final, err := r.history.await(ctx, revision)
	if err != nil {
		return position{}, err
	}
	k, err := r.history.lookUpNumber(ctx, min(revision, final))
	switch {
	case err != nil:
		return position{}, err
	case revision < max(k.oldest, firstRevision):
		return position{}, fmt.Errorf("%w: the oldest revision is %d, asked for was %d", storage.ErrCompacted, max(k.oldest, firstRevision), revision)
	case revision > max(final, firstRevision) || !k.followed && revision > firstRevision:
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
			Created: created.Int64, Modified: modified.Int64, Writes: writes.Int64,
		}
		return nil
	})
	return versions, err
}
