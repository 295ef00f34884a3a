package postgres

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/ashlar-dev/storage/driver"
)

// Bounds of a stretch: of how many keys one look finds those that a filter leaves, and how many one look returns. For many more rows than
// these, if they are most of the table, Postgres sorts all of it instead of reading them in the order of the index.
const (
	stretchKeys = 1000
	stretchRows = 2000
)

// manyRows is from how many rows of a stretch on there is room made for all that it may have.
const manyRows = 500

// read reads stretch after stretch until the page is full, or there is nothing more.
func (l *pastLook) read(ctx context.Context) error {
	bounds := l.bounds()
	// The position may include none of the next keys, however many there are: each stretch is longer than the one before.
	keys := 1
	if bounds != nil && bounds.pattern != nil {
		keys = stretchKeys
	}
	for ; bounds != nil; keys = min(4*keys, stretchRows) {
		limit := stretchRows
		if l.q.Limit > 0 {
			limit = min(limit, l.q.Limit-len(l.found))
		}
		// One more tells whether there is more.
		last, full, err := l.readStretch(ctx, bounds, limit+1, keys)
		if err != nil {
			return err
		}
		if n := len(l.found); l.q.Limit > 0 && n > l.q.Limit {
			l.found, l.past.More = l.found[:l.q.Limit], true
			return nil
		}
		switch {
		case full && l.q.KeysOnly && len(l.found) > stretchRows:
			l.found, l.past.More = l.found[:len(l.found)-1], true
			return nil
		case full && l.bytes >= l.q.MaxBytes():
			return l.lookFurther(ctx, append(last, 0))
		}
		if last == nil {
			return nil
		}
		bounds = l.bounds().from(l.q.Filter, append(last, 0))
	}
	return nil
}

// lookFurther finds out whether a page that is large enough is all there is.
func (l *pastLook) lookFurther(ctx context.Context, from []byte) error {
	q := *l.q
	q.From, q.Limit, q.KeysOnly, q.Count = from, 1, true, false
	next := &pastLook{history: l.history, conn: l.conn, q: &q, at: l.at, now: l.now}
	err := next.read(ctx)
	l.past.More = len(next.found) > 0
	return err
}

// keyRange is a range of keys, of which a pattern, if it is not nil, leaves some.
type keyRange struct{ first, end, pattern []byte }

// afterAll is after all keys, which are UTF-8.
var afterAll = []byte{0xff}

// bounds are those of the query; nil if nothing can be between them.
func (l *pastLook) bounds() *keyRange {
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

// from is what is left of a range from a key on, which a filter may leave out, with others after it.
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

// readStretch reads what there is of one stretch, of at least some keys, and returns its last one, after which there may be more; nil
// if there are no more. full says that a bound of the page was reached.
func (l *pastLook) readStretch(ctx context.Context, b *keyRange, limit, keys int) (last []byte, full bool, err error) {
	keys = max(keys, limit)
	most := l.q.MaxBytes() - l.bytes
	sql, arguments := l.sql.pastPage, []any{
		b.first, b.end, keys, b.pattern, l.at.revision, l.at.place, multirange(l.at.ahead), limit, l.q.KeysOnly, most,
	}
	switch {
	case l.now && b.pattern == nil && l.q.MaxBytes() == math.MaxInt:
		sql, arguments = l.sql.presentRows, []any{b.first, b.end, limit, l.q.KeysOnly}
	case l.now && b.pattern == nil:
		sql, arguments = l.sql.presentSpan, []any{b.first, b.end, limit, l.q.KeysOnly, most}
	case l.now:
		sql = l.sql.presentPage
	}
	var k, version, data pgtype.DriverBytes
	var created, modified, writes pgtype.Int8
	var inStretch int64
	before := len(l.found)
	var asked pgx.Batch
	asked.Queue(sql, arguments...).Query(func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&k, &version, &data, &created, &modified, &writes}, func() error {
			if !modified.Valid {
				inStretch, last = created.Int64, bytes.Clone(k)
				return nil
			}
			l.bytes += len(data)
			found := versionOf(k, version, data)
			found.CreateRevision, found.ModRevision, found.Writes = created.Int64, modified.Int64, writes.Int64
			if n := len(l.found); n == cap(l.found) && n >= manyRows { // it would be copied again and again
				l.found = slices.Grow(l.found, before+limit-n)
			}
			l.found = append(l.found, found)
			return nil
		})
		return err
	})
	l.queueCount(&asked)
	err = l.conn.SendBatch(ctx, &asked).Close()
	switch n := len(l.found); {
	case err != nil:
		return nil, false, err
	case n-before == limit || l.bytes >= l.q.MaxBytes():
		return bytes.Clone(l.found[n-1].Key), true, nil
	case inStretch < int64(keys):
		return nil, false, nil
	}
	return last, false, nil
}

// versionOf copies what a row has, at once.
func versionOf(k, version, data []byte) driver.Version {
	all := make([]byte, 0, len(data)+len(k)+base64.RawURLEncoding.EncodedLen(len(version)))
	all = append(append(all, data...), k...)
	all = base64.RawURLEncoding.AppendEncode(all, version)
	n, m := len(data), len(data)+len(k)
	return driver.Version{Data: all[:n:n], Key: all[n:m:m], Version: all[m:], SingleReader: true}
}

// multirange are ranges of numbers as Postgres writes them.
func multirange(spans []span) string {
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

// queueCount has all that the query asks for counted, whatever its limit, as far as that is quick.
func (l *pastLook) queueCount(asked *pgx.Batch) {
	b := l.bounds()
	if !l.q.Count || l.counted || b == nil {
		return
	}
	var count pgtype.Int8
	note := func(row pgx.Row) error {
		err := row.Scan(&count)
		l.past.Count, l.counted = count.Int64, count.Valid
		return err
	}
	switch {
	case l.now:
		asked.Queue(l.sql.presentCount, b.first, b.end, b.pattern).QueryRow(note)
	case len(l.at.ahead) == 0:
		asked.Queue(l.sql.countSince, b.first, b.end, b.pattern, l.at.revision, l.at.place, mostSince).QueryRow(note)
	}
}

// count counts as queueCount does, in any case.
func (l *pastLook) count(ctx context.Context) error {
	b := l.bounds()
	if !l.q.Count || b == nil {
		return nil
	}
	return l.conn.QueryRow(ctx, l.sql.pastCount, b.first, b.end, int64(1)<<62, b.pattern, l.at.revision, l.at.place, multirange(l.at.ahead)).
		Scan(&l.past.Count)
}
