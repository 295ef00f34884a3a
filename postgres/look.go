package postgres

import (
	"context"
	"encoding/base64"
	"errors"
	"time"

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
	batch *batch.Batcher[[]byte, looked]
}

// looked is what was found under a key, nil for nothing, and the revision of which that is.
type looked struct {
	version  *driver.Version
	revision int64
}

func newLooker(h *history) *looker {
	l := &looker{history: h}
	l.batch = batch.New(batch.Options[[]byte]{MaxCalls: 256, Direct: true}, l.look)
	return l
}

var _ driver.Looker = (*reader)(nil)

// errLater says that something is visible that comes after a number which is still to come.
var errLater = errors.New("what is visible is not final")

// Look implements driver.Looker.
func (r *reader) Look(ctx context.Context, k driver.Key) (*driver.Version, int64, error) {
	found, err := r.looker.batch.Do(ctx, k.Bytes())
	r.replica.answered()
	if errors.Is(err, errLater) {
		return r.lookLater(ctx, k)
	}
	return found.version, found.revision, err
}

// lookLater is Look where it has to wait. What was seen before that does not count.
func (r *reader) lookLater(ctx context.Context, k driver.Key) (found *driver.Version, revision int64, err error) {
	newest, err := r.history.lookUpNumber(ctx, 0)
	if err != nil {
		return nil, 0, err
	}
	from := k.Bytes()
	past, err := r.ReadAt(ctx, &driver.PastQuery[position]{
		At: &newest.at, Consistency: storage.StrongConsistency, From: from, To: append(from[:len(from):len(from)], 0), Limit: 1,
	}, func(v *driver.Version) error {
		found = v
		return nil
	})
	return found, r.RevisionOf(past.At), err
}

func (l *looker) look(ctx context.Context, calls []*batch.Call[[]byte, looked]) {
	keys := make([][]byte, len(calls))
	for i, c := range calls {
		keys[i] = c.Request
	}
	var snap snapshot
	err := l.retry(ctx, func(ctx context.Context) error {
		return l.query(ctx, func(ctx context.Context, conn *pgx.Conn) (err error) {
			snap, err = l.lookOnce(ctx, conn, keys)
			return err
		})
	})
	if err == nil && snap.later {
		err = errLater
	}
	for _, c := range calls {
		c.Done(looked{snap.found[string(c.Request)], snap.revision}, err)
	}
}

// snapshot is what one look has found.
type snapshot struct {
	found    map[string]*driver.Version
	revision int64
	later    bool // something was visible that is not final
}

// lookOnce asks how far the history is final, and reads keys in a snapshot that is taken after that.
func (l *looker) lookOnce(ctx context.Context, conn *pgx.Conn, keys [][]byte) (snap snapshot, err error) {
	final, server, err := l.finalOn(ctx, conn)
	if err != nil {
		return snap, err
	}
	snap.found = make(map[string]*driver.Version, len(keys))
	var here time.Time
	var at position
	var asked pgx.Batch
	asked.Queue(repeatableRead)
	asked.Queue(started).QueryRow(func(row pgx.Row) error { return row.Scan(&here) })
	asked.Queue(l.sql.last, final).QueryRow(func(row pgx.Row) (err error) {
		at, err = l.scanLast(row)
		return err
	})
	asked.Queue(l.sql.followed, final+1).QueryRow(func(row pgx.Row) error { return row.Scan(nil, &snap.later) })
	asked.Queue(l.sql.look, keys).Query(func(rows pgx.Rows) error {
		var key, version, data []byte
		var created, writes, modified int64
		_, err := pgx.ForEachRow(rows, []any{&key, &version, &data, &created, &writes, &modified, nil}, func() error {
			snap.found[string(key)] = &driver.Version{
				Key: key, Version: base64.RawURLEncoding.AppendEncode(nil, version), Data: data,
				Created: created, Writes: writes, Modified: modified,
			}
			return nil
		})
		return err
	})
	asked.Queue(`commit`)
	if err := conn.SendBatch(ctx, &asked).Close(); err != nil {
		return snap, err
	}
	if !here.Equal(server) {
		return snap, notSent{errMoved} // it is tried again
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
	at = position{revision: revision.Int64, place: place.Int32}
	copy(at.piece[:], piece)
	return at, h.check(id, oldest, &at, piece)
}
