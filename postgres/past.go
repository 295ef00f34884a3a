package postgres

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
)

// pageReader reads pages of the past and of the present.
type pageReader struct {
	*database
	history   *history
	inbox     *currentInbox
	tailLimit int // maximum number of changes after a position that are read to find the keys deleted since
}

// readAt implements driver.Historian.ReadAt. Each attempt reads into memory, up to the size of a page, and readAt adds the
// versions of a complete attempt.
func (r *pageReader) readAt(ctx context.Context, q *driver.HistoryQuery[position], add func(*driver.Version) error) (driver.HistoryPage[position], error) {
	look, err := r.readPage(ctx, q)
	if err != nil {
		return driver.HistoryPage[position]{}, err
	}
	for i := range look.versions {
		if err := add(&look.versions[i]); err != nil {
			return driver.HistoryPage[position]{}, err
		}
	}
	if q.PrecedesWatch && q.At == nil {
		r.inbox.addListing(&look.page.At)
	}
	return look.page, nil
}

// readPage reads a page at the position of the query. A page of the present that must be final is mostly final at once: no change
// is visible above a pending number. Otherwise readPage waits for it.
func (r *pageReader) readPage(ctx context.Context, q *driver.HistoryQuery[position]) (look *pageRead, err error) {
	at, final := q.At, q.Final || q.Consistency == storage.StrongConsistency
	read := func(ctx context.Context, conn *pgxpool.Conn) (err error) {
		look, err = r.readPageAt(ctx, conn, at, q, final)
		return err
	}
	for {
		if q.PrecedesWatch {
			err = r.catchUpOnPrimary(ctx, read)
		} else {
			err = r.onPrimary(ctx, read)
		}
		switch {
		case q.At != nil || !final:
			return look, err
		case at != nil && errors.Is(err, storage.ErrCompacted):
			at = nil // others have written, and compacted that position
			continue
		case err != nil || !look.notFinal:
			return look, err
		}
		newest, err := r.history.awaitFinal(ctx, 0)
		if err != nil {
			return nil, err
		}
		at = &newest.at
	}
}

// catchUpOnPrimary is onPrimary for a read by a watch.
func (r *pageReader) catchUpOnPrimary(ctx context.Context, f func(ctx context.Context, conn *pgxpool.Conn) error) error {
	done, err := r.beginCatchUp(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		return inconsistent(ctx, err)
	case err != nil:
		return err
	}
	defer done()
	return r.onPrimary(ctx, f)
}

// pageRead is one attempt to read a page, in one snapshot.
type pageRead struct {
	*history
	conn      *pgx.Conn
	tailLimit int
	q         *driver.HistoryQuery[position]
	final     bool // the present position must be final
	at        position
	now       bool // the position is the snapshot's, or no requested resource has changed since
	notFinal  bool // nothing was read, because a visible change is not final
	versions  []driver.Version
	bytes     int
	hasCount  bool
	page      driver.HistoryPage[position]
}

// readPageAt reads a page at a position, or at the present one if at is nil. Each statement is sent together with the previous one
// if it does not depend on its result.
func (r *pageReader) readPageAt(ctx context.Context, conn *pgxpool.Conn, at *position, q *driver.HistoryQuery[position], final bool) (*pageRead, error) {
	// A page may take long. So, like a write, it is abandoned only if the server reports that the session runs nothing. Behind a pooler the
	// server does not know the session's number, and only the deadline ends the page.
	if !r.viaPooler.Load() {
		var done func(bool)
		ctx, done = r.watchdog.watch(ctx, conn.Conn(), true, 0)
		defer done(false)
	}
	l := &pageRead{history: r.history, conn: conn.Conn(), tailLimit: r.tailLimit, q: q, final: final}
	var err error
	if at == nil {
		err = l.beginNow(ctx)
	} else {
		l.at = *at
		err = l.beginAt(ctx)
	}
	defer l.end()
	l.page.At = l.at
	if err == nil && !l.notFinal {
		err = l.read(ctx)
	}
	if err == nil && !l.notFinal && !l.hasCount {
		err = l.count(ctx)
	}
	return l, err
}

// beginNow begins a snapshot of the present, and reads its position.
func (l *pageRead) beginNow(ctx context.Context) error {
	final, server, err := l.finalOn(ctx, l.conn)
	if err != nil {
		return err
	}
	return l.beginAfter(ctx, final, server)
}

// beginAfter is beginNow after a server has returned the final number. On another server, after a fail-over or a crash, lower
// numbers may be pending again; and a pooler may switch servers between transactions.
func (l *pageRead) beginAfter(ctx context.Context, final int64, server string) error {
	l.now = true
	var here string
	var queries pgx.Batch
	queries.Queue(repeatableRead)
	l.queueLast(&queries, final, &here, &l.at)
	l.queueFence(ctx, &queries)
	if l.final {
		queries.Queue(l.sql.hasChangeFrom, final+1).QueryRow(func(row pgx.Row) error { return row.Scan(nil, &l.notFinal) })
	}
	if err := l.conn.SendBatch(ctx, &queries).Close(); err != nil {
		return err
	}
	if here != server {
		return notSent{errMoved} // it is retried
	}
	if l.final {
		return nil
	}
	return l.addAboveFrontier(ctx, l.conn, &l.at, final)
}

// queueFence queues the query for the fence, if the page must not be that of a store that has moved.
func (l *pageRead) queueFence(ctx context.Context, queries *pgx.Batch) {
	if !l.q.RefuseMoved {
		return
	}
	queries.Queue(l.sql.readFence).QueryRow(func(row pgx.Row) error {
		var fence []byte
		err := row.Scan(&fence)
		if err == nil {
			err = permanentError(readError(ctx, fence))
		}
		return err
	})
}

// maxIndexedChanges is the maximum number of changes after a position that a statement searches to find out whether the present can
// be read instead, or to correct the number of present resources.
const maxIndexedChanges = 10000

// beginAt begins a snapshot, and verifies that the store can be read at the position: all of its changes exist, and nothing was
// compacted. If no requested resource has changed since, the present is read instead.
func (l *pageRead) beginAt(ctx context.Context) error {
	var id driver.StoreID
	var oldest int64
	var exists bool
	var more pgtype.Bool
	var piece []byte
	var queries pgx.Batch
	queries.Queue(repeatableRead)
	queries.Queue(l.sql.changeAt, l.at.revision, l.at.index).QueryRow(func(row pgx.Row) error {
		return row.Scan((*[16]byte)(&id), &oldest, &exists, &more, &piece)
	})
	l.queueFence(ctx, &queries)
	if b := l.bounds(); b != nil && len(l.at.aboveFrontier) == 0 {
		queries.Queue(l.sql.noChangeSince, b.first, b.end, l.at.revision, l.at.index, maxIndexedChanges).QueryRow(func(row pgx.Row) error {
			return row.Scan(&l.now)
		})
	}
	err := l.conn.SendBatch(ctx, &queries).Close()
	if err == nil {
		err = l.check(id, oldest, &l.at, piece)
	}
	if err == nil && (more.Bool || !exists && l.at.index != 0) {
		err = fmt.Errorf("%w: the position is inside a commit", storage.ErrInvalid)
	}
	if err == nil {
		err = l.checkAboveFrontier(ctx, l.conn, &l.at)
	}
	return permanentError(err)
}

// end ends the transaction, which only reads.
func (l *pageRead) end() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, _ = l.conn.Exec(ctx, `rollback`)
}

// Bounds of a stretch: the number of keys per filtering statement, and the maximum number of its rows. For many more rows, if they
// are most of the table, Postgres sorts the whole table instead of reading it in the order of the index.
const (
	rangeKeys = 1000
	rangeRows = 2000
)

// manyRows is the number of rows of a stretch from which on memory for a full stretch is allocated.
const manyRows = 500

// read reads one stretch after another until the page is full, or there are no more keys.
func (l *pageRead) read(ctx context.Context) error {
	bounds := l.bounds()
	// The position may include none of the next keys, however many they are. So each stretch is longer than the previous one.
	keys := 1
	if bounds != nil && bounds.pattern != nil {
		keys = rangeKeys
	}
	for ; bounds != nil; keys = min(4*keys, rangeRows) {
		limit := rangeRows
		if l.q.Limit > 0 {
			limit = min(limit, l.q.Limit-len(l.versions))
		}
		// One additional row shows whether there are more.
		last, full, err := l.readRange(ctx, bounds, limit+1, keys)
		if err != nil {
			return err
		}
		if n := len(l.versions); l.q.Limit > 0 && n > l.q.Limit {
			l.versions, l.page.More = l.versions[:l.q.Limit], true
			return nil
		}
		switch {
		case full && l.q.KeysOnly && len(l.versions) > rangeRows:
			l.versions, l.page.More = l.versions[:len(l.versions)-1], true
			return nil
		case full && l.bytes >= l.q.MaxBytes():
			return l.extendRange(ctx, append(last, 0))
		}
		if last == nil {
			return nil
		}
		bounds = l.bounds().from(l.q.Filter, append(last, 0))
	}
	return nil
}

// extendRange finds out whether there are more versions after a page that is full by its size.
func (l *pageRead) extendRange(ctx context.Context, from []byte) error {
	q := *l.q
	q.From, q.Limit, q.KeysOnly, q.Count = from, 1, true, false
	next := &pageRead{history: l.history, conn: l.conn, tailLimit: l.tailLimit, q: &q, at: l.at, now: l.now}
	err := next.read(ctx)
	l.page.More = len(next.versions) > 0
	return err
}

// keyRange is a range of keys with an optional pattern.
type keyRange struct{ first, end, pattern []byte }

// bounds returns the range of the query; nil if it is empty.
func (l *pageRead) bounds() *keyRange {
	b := &keyRange{first: []byte{}, end: afterAll}
	if l.q.Filter != nil {
		arguments := listArguments(l.q.Filter)
		b.first, b.pattern = arguments[0].([]byte), arguments[2].([]byte)
		if end := arguments[1].([]byte); end != nil {
			b.end = end
		}
	}
	if l.q.To != nil && bytes.Compare(l.q.To, b.end) < 0 {
		b.end = l.q.To
	}
	if bytes.Compare(l.q.From, b.first) > 0 {
		return b.from(l.q.Filter, l.q.From)
	}
	return b.from(l.q.Filter, b.first)
}

// from returns the rest of a range from a key on; nil if it is empty. It skips keys that the filter does not match.
func (b *keyRange) from(f *driver.Filter, first []byte) *keyRange {
	if b == nil {
		return nil
	}
	if f != nil {
		var more bool
		if first, more = f.Seek(first); !more {
			return nil
		}
	}
	if bytes.Compare(first, b.end) >= 0 {
		return nil
	}
	return &keyRange{first, b.end, b.pattern}
}

// readRange reads a stretch of at least some keys. It returns the last key of the stretch, and there may be more keys after it; nil
// if there are no more. full means that a bound of the page was reached.
func (l *pageRead) readRange(ctx context.Context, b *keyRange, limit, keys int) (last []byte, full bool, err error) {
	keys = max(keys, limit)
	maxBytes := l.q.MaxBytes() - l.bytes
	sql, arguments := l.sql.historyPage, []any{
		b.first, b.end, keys, b.pattern, l.at.revision, l.at.index, multirange(l.at.aboveFrontier), l.tailLimit, limit, l.q.KeysOnly, maxBytes,
	}
	switch {
	case l.now && b.pattern == nil && l.q.MaxBytes() == math.MaxInt:
		sql, arguments = l.sql.presentRows, []any{b.first, b.end, limit, l.q.KeysOnly}
	case l.now && b.pattern == nil:
		sql, arguments = l.sql.presentRange, []any{b.first, b.end, limit, l.q.KeysOnly, maxBytes}
	case l.now:
		sql = l.sql.presentPage
	}
	var k, version, data pgtype.DriverBytes
	var created, modified, writes pgtype.Int8
	var inStretch int64
	before := len(l.versions)
	var queries pgx.Batch
	queries.Queue(sql, arguments...).Query(func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&k, &version, &data, &created, &modified, &writes}, func() error {
			if !modified.Valid {
				inStretch, last = created.Int64, bytes.Clone(k)
				return nil
			}
			l.bytes += len(data)
			found := versionOf(k, version, data)
			found.CreateRevision, found.ModRevision, found.Writes = created.Int64, modified.Int64, writes.Int64
			if n := len(l.versions); n == cap(l.versions) && n >= manyRows { // avoids repeated copies
				l.versions = slices.Grow(l.versions, before+limit-n)
			}
			l.versions = append(l.versions, found)
			return nil
		})
		return err
	})
	l.queueCount(&queries)
	err = l.conn.SendBatch(ctx, &queries).Close()
	switch n := len(l.versions); {
	case err != nil:
		return nil, false, err
	case n-before == limit || l.bytes >= l.q.MaxBytes():
		return bytes.Clone(l.versions[n-1].Key), true, nil
	case inStretch < int64(keys):
		return nil, false, nil
	}
	return last, false, nil
}

// versionOf copies a row, with a single allocation.
func versionOf(k, version, data []byte) driver.Version {
	all := make([]byte, 0, len(data)+len(k)+base64.RawURLEncoding.EncodedLen(len(version)))
	all = append(append(all, data...), k...)
	all = base64.RawURLEncoding.AppendEncode(all, version)
	n, m := len(data), len(data)+len(k)
	return driver.Version{Data: all[:n:n], Key: all[n:m:m], Version: all[m:], SingleReader: true}
}

// multirange formats ranges of numbers for Postgres.
func multirange(spans []numberRange) string {
	var b strings.Builder
	b.WriteByte('{')
	for i, s := range spans {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "[%d,%d]", s.from, s.to)
	}
	b.WriteByte('}')
	return b.String()
}

// queueCount queues a count of all matches of the query, regardless of its limit, if the count is fast.
func (l *pageRead) queueCount(queries *pgx.Batch) {
	b := l.bounds()
	if !l.q.Count || l.hasCount || b == nil {
		return
	}
	var count pgtype.Int8
	scan := func(row pgx.Row) error {
		err := row.Scan(&count)
		l.page.Count, l.hasCount = count.Int64, count.Valid
		return err
	}
	switch {
	case l.now:
		queries.Queue(l.sql.presentCount, b.first, b.end, b.pattern).QueryRow(scan)
	case len(l.at.aboveFrontier) == 0:
		queries.Queue(l.sql.countSince, b.first, b.end, b.pattern, l.at.revision, l.at.index, maxIndexedChanges).QueryRow(scan)
	}
}

// count counts all matches of the query, in any case.
func (l *pageRead) count(ctx context.Context) error {
	b := l.bounds()
	if !l.q.Count || b == nil {
		return nil
	}
	return l.conn.QueryRow(ctx, l.sql.historyCount, b.first, b.end, int64(1)<<62, b.pattern, l.at.revision, l.at.index, multirange(l.at.aboveFrontier), l.tailLimit).
		Scan(&l.page.Count)
}
