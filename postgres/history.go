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

// historian implements driver.Historian.
type historian struct {
	*database
	history  *history
	pages    *pageReader
	keys     *keyReader
	finality *finalityCheck
}

func newHistorian(d *database, h *history, in *currentInbox) *historian {
	return &historian{d, h, &pageReader{d, h, in, maxIndexedChanges}, newKeyReader(h), newFinalityCheck(h)}
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
	if err == nil && q.RefuseMoved {
		err = readError(ctx, found.fence)
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

// RevisionOf implements driver.Historian. Only numbers of changes that were read are revisions: other numbers may be drawn again.
func (*historian) RevisionOf(at position) int64 { return max(at.revision, firstRevision) }

// PositionAt implements driver.Historian.
func (h *historian) PositionAt(ctx context.Context, revision int64) (position, error) {
	k, err := h.history.awaitFinal(ctx, revision)
	switch {
	case err != nil:
		return position{}, err
	case revision < max(k.oldest, firstRevision):
		return position{}, fmt.Errorf("%w: the oldest revision is %d, got %d", storage.ErrCompacted, max(k.oldest, firstRevision), revision)
	case revision > max(k.final, firstRevision) || !k.exists && revision > firstRevision:
		return position{}, fmt.Errorf("%w: the newest revision is %d, got %d", storage.ErrFutureRevision, h.RevisionOf(k.at), revision)
	}
	h.replica.recordIssue()
	return k.at, nil
}

// Compact implements driver.Historian. The oldest revision is always the number of a change. If the history was compacted before, and a
// fail-over has reverted that since, Compact starts again.
func (h *historian) Compact(ctx context.Context, revision int64) error {
	for isCompacted := false; !isCompacted; {
		at, err := h.PositionAt(ctx, revision)
		sql, arguments := h.sql.compact, []any{at.revision, at.index, at.tokenPrefix[:]}
		switch {
		case errors.Is(err, storage.ErrCompacted):
			sql, arguments = h.sql.proveCompacted, []any{revision} // the earlier compaction may not be durable
		case err != nil:
			return err
		case at.revision == 0:
			return nil
		}
		if err := h.retry(ctx, func(ctx context.Context) error {
			return h.query(ctx, func(ctx context.Context, conn *pgx.Conn) error {
				on := h.sessions.of(conn)
				on.hasWarning = false
				err := conn.QueryRow(ctx, sql, arguments...).Scan(&isCompacted)
				if err == nil && on.hasWarning {
					err = fmt.Errorf("compact: %w", errUnsure)
				}
				return err
			})
		}); err != nil {
			return err
		}
	}
	return nil
}

// Before implements driver.Historian.
func (h *historian) Before(ctx context.Context, events []*event) (versions []*driver.Version, err error) {
	revisions, indexes := make([]int64, len(events)), make([]int32, len(events))
	for i, ev := range events {
		revisions[i], indexes[i] = ev.At.revision, ev.At.index
	}
	var n int
	var id pgtype.UUID
	var oldest int64
	var piece, version, data []byte
	var previous, created, modified, writes pgtype.Int8
	begin := func() { versions = make([]*driver.Version, len(events)) }
	into := []any{&n, &id, &oldest, &piece, &previous, &version, &data, &created, &modified, &writes}
	err = h.queryPrimary(ctx, begin, h.sql.before, []any{revisions, indexes}, into, func() error {
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

// keyReader reads single keys at the newest revision. Concurrent calls share one snapshot, which is taken after the last call has
// arrived.
type keyReader struct {
	*history
	batch *batch.Batcher[keyRequest, keyResult]
}

// keyRequest is a key, and whether the revision must be final.
type keyRequest struct {
	key   []byte
	final bool
}

// keyResult is the version of a key, nil if there is none, and the position of the snapshot.
type keyResult struct {
	version *driver.Version
	at      position
	fence   []byte // nil in an open store
}

func newKeyReader(h *history) *keyReader {
	l := &keyReader{history: h}
	l.batch = batch.New(batch.Options[keyRequest]{MaxCalls: 256, Direct: true}, l.readBatch)
	return l
}

// errNotFinal reports that a change is visible above a pending number.
var errNotFinal = errors.New("a visible change is not final")

// sharedReadRetries is the maximum number of attempts of a shared read. The pending commit is mostly visible by then, unless its
// writer waits for others.
const sharedReadRetries = 8

func (l *keyReader) readBatch(ctx context.Context, calls []*keyCall) {
	for range sharedReadRetries {
		snap, err := l.readShared(ctx, calls)
		var retries []*keyCall
		for _, c := range calls {
			if err == nil && snap.notFinal && c.Request.final {
				retries = append(retries, c)
			} else {
				c.Done(keyResult{snap.versions[string(c.Request.key)], snap.at, snap.fence}, err)
			}
		}
		if calls = retries; len(calls) == 0 {
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

// snapshot is the result of a shared read.
type snapshot struct {
	versions map[string]*driver.Version
	at       position
	notFinal bool // a visible change is not final
	fence    []byte
}

// readAttempt reads how far the history is final, and then the keys in a later snapshot, in one transaction and one round trip.
func (l *keyReader) readAttempt(ctx context.Context, conn *pgx.Conn, keys [][]byte) (snap snapshot, err error) {
	snap.versions = make(map[string]*driver.Version, len(keys))
	var queries pgx.Batch
	queries.Queue(readCommitted)
	queries.Queue(l.sql.saveFinal).QueryRow(func(row pgx.Row) error {
		_, _, err := scanFinal(row, nil)
		return err
	})
	queries.Queue(l.sql.readKeys, keys).Query(func(rows pgx.Rows) error {
		var id driver.StoreID
		var oldest int64
		var last, created, writes, modified pgtype.Int8
		var index pgtype.Int4
		var piece, key, version, data []byte
		in := []any{(*[16]byte)(&id), &oldest, &last, &index, &piece, &snap.notFinal, &snap.fence, &key, &version, &data, &created, &writes, &modified, nil}
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
			snap.at, err = l.lastAt(id, oldest, last, index, piece)
		}
		return err
	})
	queries.Queue(`commit`)
	err = conn.SendBatch(ctx, &queries).Close()
	return snap, err
}

// finalityCheck finds out whether all changes are final up to numbers that this handle has drawn. Concurrent calls share one
// check, which begins after the last call has arrived.
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

var errNoSuchChange = errors.New("the database has no change with this number or a higher one")

// AwaitFinal implements driver.Historian.
func (h *historian) AwaitFinal(ctx context.Context, revision int64) error {
	for pause := time.Millisecond; ; pause = min(2*pause, maxPause) {
		_, err := h.finality.batch.Do(ctx, revision)
		switch {
		case errors.Is(err, errNoSuchChange):
			_, err = h.PositionAt(ctx, revision) // returns the reason
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
	highest := calls[0].Request
	for _, c := range calls {
		highest = max(highest, c.Request)
	}
	var final int64
	exists := false
	err := l.retry(ctx, func(ctx context.Context) error {
		return l.query(ctx, func(ctx context.Context, conn *pgx.Conn) (err error) {
			final, exists, err = l.checkAttempt(ctx, conn, highest)
			return err
		})
	})
	for _, c := range calls {
		switch {
		case err == nil && !exists:
			c.Done(struct{}{}, errNoSuchChange)
		case err == nil && final < c.Request:
			c.Done(struct{}{}, errPendingCommit)
		default:
			c.Done(struct{}{}, err)
		}
	}
}

// checkAttempt reads how far the history is final, and whether there is a change with a number or a higher one. Both queries go to
// one server in one round trip. The change was committed before this call, so their order does not matter.
func (l *finalityCheck) checkAttempt(ctx context.Context, conn *pgx.Conn, revision int64) (final int64, exists bool, err error) {
	var id driver.StoreID
	var queries pgx.Batch
	queries.Queue(readCommitted)
	queries.Queue(l.sql.final).QueryRow(func(row pgx.Row) error {
		_, final, err = scanFinal(row)
		return err
	})
	queries.Queue(l.sql.hasChangeFrom, revision).QueryRow(func(row pgx.Row) error {
		return row.Scan((*[16]byte)(&id), &exists)
	})
	queries.Queue(`commit`)
	if err := conn.SendBatch(ctx, &queries).Close(); err != nil {
		return 0, false, err
	}
	if id != *l.id.Load() {
		l.id.Store(&id)
		return 0, false, errOther
	}
	return final, exists, nil
}
