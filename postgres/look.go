package postgres

import (
	"context"
	"encoding/base64"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/batch"
)

// looker reads single keys as of the newest revision. Those who ask at the same time share one snapshot, which is taken after the last of
// them has asked.
type looker struct {
	*history
	batch *batch.Batcher[wanted, looked]
}

// wanted is a key to look at, and whether the revision has to be final.
type wanted struct {
	key   []byte
	final bool
}

// looked is what was found under a key, nil for nothing, and the revision of which that is.
type looked struct {
	version  *driver.Version
	revision int64
}

func newLooker(h *history) *looker {
	l := &looker{history: h}
	l.batch = batch.New(batch.Options[wanted]{MaxCalls: 256, Direct: true}, l.look)
	return l
}

var _ driver.Looker = (*reader)(nil)

// errLater says that something is visible that comes after a number which is still to come.
var errLater = errors.New("what is visible is not final")

// Look implements driver.Looker.
func (r *reader) Look(ctx context.Context, k driver.Key, final bool) (*driver.Version, int64, error) {
	found, err := r.looker.batch.Do(ctx, wanted{k.Bytes(), final})
	r.replica.answered()
	if errors.Is(err, errLater) {
		return r.lookLater(ctx, k)
	}
	return found.version, found.revision, err
}

// lookLater is Look where it may have to wait. What was seen before that does not count.
func (r *reader) lookLater(ctx context.Context, k driver.Key) (found *driver.Version, revision int64, err error) {
	from := k.Bytes()
	past, err := r.ReadAt(ctx, &driver.HistoryQuery[position]{
		Consistency: storage.StrongConsistency, Final: true, From: from, To: append(from[:len(from):len(from)], 0), Limit: 1,
	}, func(v *driver.Version) error {
		found = v
		return nil
	})
	return found, r.RevisionOf(past.At), err
}

// looksAgain is how often those who share a look take another one. What they wait for is mostly there by then: the commit of a writer that
// does not wait for anybody else.
const looksAgain = 8

func (l *looker) look(ctx context.Context, calls []*lookMember) {
	for range looksAgain {
		snap, err := l.lookAt(ctx, calls)
		var left []*lookMember
		for _, c := range calls {
			if err == nil && snap.later && c.Request.final {
				left = append(left, c)
			} else {
				c.Done(looked{snap.found[string(c.Request.key)], snap.revision}, err)
			}
		}
		if calls = left; len(calls) == 0 {
			return
		}
	}
	for _, c := range calls {
		c.Done(looked{}, errLater)
	}
}

type lookMember = batch.Call[wanted, looked]

func (l *looker) lookAt(ctx context.Context, calls []*lookMember) (snap snapshot, err error) {
	keys := make([][]byte, len(calls))
	for i, c := range calls {
		keys[i] = c.Request.key
	}
	err = l.retry(ctx, func(ctx context.Context) error {
		return l.query(ctx, func(ctx context.Context, conn *pgx.Conn) (err error) {
			snap, err = l.lookOnce(ctx, conn, keys)
			return err
		})
	})
	return snap, err
}

// snapshot is what one look has found.
type snapshot struct {
	found    map[string]*driver.Version
	revision int64
	later    bool // something was visible that is not final
}

// lookOnce asks how far the history is final, and reads keys in a snapshot that is taken after that, in one transaction and one round trip.
func (l *looker) lookOnce(ctx context.Context, conn *pgx.Conn, keys [][]byte) (snap snapshot, err error) {
	snap.found = make(map[string]*driver.Version, len(keys))
	var at position
	var asked pgx.Batch
	asked.Queue(readCommitted)
	asked.Queue(l.sql.finalNoted).QueryRow(func(row pgx.Row) error {
		_, _, err := scanFinal(row, nil)
		return err
	})
	asked.Queue(l.sql.look, keys).Query(func(rows pgx.Rows) error {
		var id driver.StoreID
		var oldest int64
		var last, created, writes, modified pgtype.Int8
		var place pgtype.Int4
		var piece, key, version, data []byte
		in := []any{(*[16]byte)(&id), &oldest, &last, &place, &piece, &snap.later, &key, &version, &data, &created, &writes, &modified, nil}
		_, err := pgx.ForEachRow(rows, in, func() error {
			if key != nil {
				snap.found[string(key)] = &driver.Version{
					Key: key, Version: base64.RawURLEncoding.AppendEncode(nil, version), Data: data,
					CreateRevision: created.Int64, Writes: writes.Int64, ModRevision: modified.Int64,
				}
			}
			return nil
		})
		if err == nil {
			at, err = l.lastAt(id, oldest, last, place, piece)
		}
		return err
	})
	asked.Queue(`commit`)
	if err := conn.SendBatch(ctx, &asked).Close(); err != nil {
		return snap, err
	}
	snap.revision = max(at.revision, firstRevision)
	return snap, nil
}

// scanLast reads the answer to the statement last.
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

// lastAt is the position of a change, none if there was none, if it is still in the store.
func (h *history) lastAt(id driver.StoreID, oldest int64, revision pgtype.Int8, place pgtype.Int4, piece []byte) (position, error) {
	at := position{revision: revision.Int64, place: place.Int32}
	copy(at.piece[:], piece)
	return at, h.check(id, oldest, &at, piece)
}
