package postgres

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/batch"
)

// historian reads the past, and compacts it.
type historian struct {
	*database
	history  *history
	pages    *pageReader
	keys     *keyReader
	finality *finalityCheck
}

func newHistorian(d *database, h *history, in *currentInbox) *historian {
	return &historian{d, h, &pageReader{d, h, in}, newKeyReader(h), newFinalityCheck(h)}
}

// ReadAt implements driver.Historian. A single key at the present position is read in a batch with others.
func (h *historian) ReadAt(ctx context.Context, q *driver.HistoryQuery[position], add func(*driver.Version) error) (page driver.HistoryPage[position], err error) {
	if q.Key == nil || q.At != nil {
		return h.pages.readAt(ctx, q, add)
	}
	found, err := h.keys.batch.Do(ctx, keyRequest{q.Key.Bytes(), q.Final})
	h.replica.recordIssue()
	if errors.Is(err, errNotFinal) { // the answer may have to wait; the shared reads do not count
		return h.pages.readAt(ctx, q, add)
	}
	page.At = found.at
	if err == nil && found.version != nil {
		page.Count = 1
		err = add(found.version)
	}
	return page, err
}

// Revisions implements driver.Historian.
func (h *historian) Revisions(ctx context.Context) (oldest, newest int64, err error) {
	k, err := h.history.awaitFinal(ctx, 0)
	if err != nil {
		return 0, 0, err
	}
	h.replica.recordIssue()
	return max(k.oldest, firstRevision), h.RevisionOf(k.at), nil
}

// RevisionOf implements driver.Historian. Only numbers of changes that were read are revisions: others may be drawn again.
func (*historian) RevisionOf(at position) int64 { return max(at.revision, firstRevision) }

// PositionAt implements driver.Historian.
func (h *historian) PositionAt(ctx context.Context, revision int64) (position, error) {
	k, err := h.history.awaitFinal(ctx, revision)
	switch {
	case err != nil:
		return position{}, err
	case revision < max(k.oldest, firstRevision):
		return position{}, fmt.Errorf("%w: the oldest revision is %d, asked for was %d", storage.ErrCompacted, max(k.oldest, firstRevision), revision)
	case revision > max(k.final, firstRevision) || !k.exists && revision > firstRevision:
		return position{}, fmt.Errorf("%w: the newest is %d, asked for was %d", storage.ErrFutureRevision, h.RevisionOf(k.at), revision)
	}
	h.replica.recordIssue()
	return k.at, nil
}

// Compact implements driver.Historian. The oldest revision is always that of a change.
func (h *historian) Compact(ctx context.Context, revision int64) error {
	at, err := h.PositionAt(ctx, revision)
	if errors.Is(err, storage.ErrCompacted) || err == nil && at.revision == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	return h.retry(ctx, func(ctx context.Context) error {
		return h.query(ctx, func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, h.sql.compact, at.revision, at.index, at.tokenPrefix[:])
			return err
		})
	})
}

// Before implements driver.Historian.
func (h *historian) Before(ctx context.Context, events []*event) (versions []*driver.Version, err error) {
	revisions, places := make([]int64, len(events)), make([]int32, len(events))
	for i, ev := range events {
		revisions[i], places[i] = ev.At.revision, ev.At.index
	}
	var n int
	var id pgtype.UUID
	var oldest int64
	var piece, version, data []byte
	var previous, created, modified, writes pgtype.Int8
	begin := func() { versions = make([]*driver.Version, len(events)) }
	into := []any{&n, &id, &oldest, &piece, &previous, &version, &data, &created, &modified, &writes}
	err = h.queryPrimary(ctx, begin, h.sql.before, []any{revisions, places}, into, func() error {
		ev := events[n-1]
		if ev.At.revision <= oldest {
			return permanent{errPruned}
		}
		if err := h.history.check(id.Bytes, oldest, &ev.At, piece); err != nil || !previous.Valid {
			return permanentError(err)
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

// keyReader reads single keys as of the newest revision. Those who ask at the same time share one snapshot, which is taken after the last of
// them has asked.
type keyReader struct {
	*history
	batch *batch.Batcher[keyRequest, keyResult]
}

// keyRequest is a key to look at, and whether the revision has to be final.
type keyRequest struct {
	key   []byte
	final bool
}

// keyResult is what was found under a key, nil for nothing, and the position of the snapshot.
type keyResult struct {
	version *driver.Version
	at      position
}

func newKeyReader(h *history) *keyReader {
	l := &keyReader{history: h}
	l.batch = batch.New(batch.Options[keyRequest]{MaxCalls: 256, Direct: true}, l.readBatch)
	return l
}

// errNotFinal says that something is visible that comes after a number which is still to come.
var errNotFinal = errors.New("what is visible is not final")

// sharedReadRetries is how often those who share a look take another one. What they wait for is mostly there by then: the commit of a writer that
// does not wait for anybody else.
const sharedReadRetries = 8

func (l *keyReader) readBatch(ctx context.Context, calls []*keyCall) {
	for range sharedReadRetries {
		snap, err := l.readShared(ctx, calls)
		var left []*keyCall
		for _, c := range calls {
			if err == nil && snap.notFinal && c.Request.final {
				left = append(left, c)
			} else {
				c.Done(keyResult{snap.versions[string(c.Request.key)], snap.at}, err)
			}
		}
		if calls = left; len(calls) == 0 {
			return
		}
	}
	for _, c := range calls {
		c.Done(keyResult{}, errNotFinal)
	}
}

type keyCall = batch.Call[keyRequest, keyResult]

func (l *keyReader) readShared(ctx context.Context, calls []*keyCall) (snap snapshot, err error) {
	keys := make([][]byte, len(calls))
	for i, c := range calls {
		keys[i] = c.Request.key
	}
	err = l.retry(ctx, func(ctx context.Context) error {
		return l.query(ctx, func(ctx context.Context, conn *pgx.Conn) (err error) {
			snap, err = l.readAttempt(ctx, conn, keys)
			return err
		})
	})
	return snap, err
}

// snapshot is what one look has found.
type snapshot struct {
	versions map[string]*driver.Version
	at       position
	notFinal bool // something was visible that is not final
}

// readAttempt asks how far the history is final, and reads keys in a snapshot that is taken after that, in one transaction and one round trip.
func (l *keyReader) readAttempt(ctx context.Context, conn *pgx.Conn, keys [][]byte) (snap snapshot, err error) {
	snap.versions = make(map[string]*driver.Version, len(keys))
	var asked pgx.Batch
	asked.Queue(readCommitted)
	asked.Queue(l.sql.saveFinal).QueryRow(func(row pgx.Row) error {
		_, _, err := scanFinal(row, nil)
		return err
	})
	asked.Queue(l.sql.readKeys, keys).Query(func(rows pgx.Rows) error {
		var id driver.StoreID
		var oldest int64
		var last, created, writes, modified pgtype.Int8
		var place pgtype.Int4
		var piece, key, version, data []byte
		in := []any{(*[16]byte)(&id), &oldest, &last, &place, &piece, &snap.notFinal, &key, &version, &data, &created, &writes, &modified, nil}
		_, err := pgx.ForEachRow(rows, in, func() error {
			if key != nil {
				snap.versions[string(key)] = &driver.Version{
					Key: key, Version: base64.RawURLEncoding.AppendEncode(nil, version), Data: data,
					CreateRevision: created.Int64, Writes: writes.Int64, ModRevision: modified.Int64,
				}
			}
			return nil
		})
		if err == nil {
			snap.at, err = l.lastAt(id, oldest, last, place, piece)
		}
		return err
	})
	asked.Queue(`commit`)
	err = conn.SendBatch(ctx, &asked).Close()
	return snap, err
}

// finalityCheck finds out whether all is final up to changes that this handle has made. Those who ask at the same time share one look, which
// begins after the last of them has asked.
type finalityCheck struct {
	*history
	batch *batch.Batcher[int64, struct{}]
}

func newFinalityCheck(h *history) *finalityCheck {
	l := &finalityCheck{history: h}
	l.batch = batch.New(batch.Options[int64]{MaxCalls: 1024, Direct: true}, l.checkBatch)
	return l
}

type finalityCall = batch.Call[int64, struct{}]

var errNoSuchChange = errors.New("no change of the number, or after it, is there")

// AwaitFinal implements driver.Historian.
func (h *historian) AwaitFinal(ctx context.Context, revision int64) error {
	for pause := time.Millisecond; ; pause = min(2*pause, maxPause) {
		_, err := h.finality.batch.Do(ctx, revision)
		switch {
		case errors.Is(err, errNoSuchChange):
			_, err = h.PositionAt(ctx, revision) // which can tell why
			return err
		case !errors.Is(err, errPendingCommit):
			return err
		}
		if err := h.pause(ctx, pause, err); err != nil {
			return err
		}
	}
}

func (l *finalityCheck) checkBatch(ctx context.Context, calls []*finalityCall) {
	most := calls[0].Request
	for _, c := range calls {
		most = max(most, c.Request)
	}
	var final int64
	there := false
	err := l.retry(ctx, func(ctx context.Context) error {
		return l.query(ctx, func(ctx context.Context, conn *pgx.Conn) (err error) {
			final, there, err = l.checkAttempt(ctx, conn, most)
			return err
		})
	})
	for _, c := range calls {
		switch {
		case err == nil && !there:
			c.Done(struct{}{}, errNoSuchChange)
		case err == nil && final < c.Request:
			c.Done(struct{}{}, errPendingCommit)
		default:
			c.Done(struct{}{}, err)
		}
	}
}

// checkAttempt asks how far the history is final, and whether there is a change of a number, or after it, both on one server and in one round
// trip: the change was committed before this was called, so it is found whichever of the two is asked first.
func (l *finalityCheck) checkAttempt(ctx context.Context, conn *pgx.Conn, revision int64) (final int64, there bool, err error) {
	var id driver.StoreID
	var asked pgx.Batch
	asked.Queue(readCommitted)
	asked.Queue(l.sql.final).QueryRow(func(row pgx.Row) error {
		_, final, err = scanFinal(row)
		return err
	})
	asked.Queue(l.sql.hasChangeFrom, revision).QueryRow(func(row pgx.Row) error {
		return row.Scan((*[16]byte)(&id), &there)
	})
	asked.Queue(`commit`)
	if err := conn.SendBatch(ctx, &asked).Close(); err != nil {
		return 0, false, err
	}
	if id != *l.id.Load() {
		l.id.Store(&id)
		return 0, false, errOther
	}
	return final, there, nil
}
