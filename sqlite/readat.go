package sqlite

import (
	"bytes"
	"context"
	"errors"

	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
)

// ReadAt implements driver.Historian. Every read begins with the newest commit of the file, so the present position is final and strong.
func (d *database) ReadAt(ctx context.Context, q *driver.HistoryQuery[position], add func(*driver.Version) error) (p driver.HistoryPage[position], err error) {
	var refused error // what add has returned
	err = d.inSnapshot(ctx, "read the rows", func(c *conn) error {
		sp, err := c.readableRange()
		if err != nil {
			return err
		}
		p = driver.HistoryPage[position]{At: sp.newest}
		if q.At != nil {
			if err := c.checkPosition(*q.At, sp); err != nil {
				return err
			}
			p.At = *q.At
		}
		r := historyRead{conn: c, query: q, at: p.At.seq, newest: sp.newest.seq}
		last := q.From
		size, added := 0, 0
		err = r.visitAll(q.From, q.KeysOnly, func(v *driver.Version) (bool, error) {
			if q.Limit > 0 && added == q.Limit || size >= q.MaxBytes() {
				p.More = true
				return false, nil
			}
			last = append(append(make([]byte, 0, len(v.Key)+1), v.Key...), 0)
			size, added = size+len(v.Data), added+1
			if q.KeysOnly {
				size += keyRecordBytes
			}
			refused = add(v)
			return true, refused
		})
		if p.Count = int64(added); err == nil && p.More && q.Count {
			err = r.visitAll(last, true, func(*driver.Version) (bool, error) {
				p.Count++
				return true, nil
			})
		}
		return err
	})
	if refused != nil {
		return p, refused
	}
	return p, err
}

// keyRecordBytes is about what a record without its resource takes in memory.
const keyRecordBytes = 640

// historyRead is a reading of the store as it was at a row of the log.
//
// Two lists in key order are merged: the resources of now, most of which were the same then, and those that were deleted since. Of each
// that has changed since, its chain is followed to what it was.
type historyRead struct {
	conn   *conn
	query  *driver.HistoryQuery[position]
	at     int64
	newest int64
}

// visit looks at a version, and reports whether there should be more.
type visit func(*driver.Version) (more bool, err error)

// visitAll visits what was stored, in key order.
func (r *historyRead) visitAll(from []byte, keysOnly bool, see visit) (err error) {
	q := pastRows
	if keysOnly {
		q = pastKeys
	}
	now, err := r.conn.iterate(q, from, r.query.To, r.query.Filter)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ignoreRepeated(now.close(), err)) }()
	gone := deletions{conn: r.conn, after: r.at, to: now.to, filter: r.query.Filter, atEnd: r.newest == r.at}
	if err := gone.seek(from); err != nil {
		return err
	}
	there, err := now.next()
	for more := true; more && err == nil && (there || !gone.atEnd); {
		order := -1
		switch {
		case !there:
			order = 1
		case !gone.atEnd:
			order = bytes.Compare(now.key, gone.key)
		}
		var v *driver.Version
		if v, err = r.stateOf(now, &gone, order, keysOnly); v != nil && err == nil {
			more, err = see(v)
		}
		if order <= 0 && more && err == nil {
			there, err = now.next()
		}
		if order >= 0 && more && err == nil {
			err = gone.next()
		}
	}
	return err
}

// stateOf returns what was stored under the lower one of two keys, nil for nothing: that of a resource of now, if order is not above 0,
// and that of one which was deleted, if order is not below.
func (r *historyRead) stateOf(now *keyIterator, gone *deletions, order int, keysOnly bool) (*driver.Version, error) {
	if order <= 0 {
		s := now.stmt
		m, created := position{s.ColumnInt64(1), s.ColumnInt64(2)}, s.ColumnInt64(3)
		if m.seq <= r.at {
			now.version = driver.Version{
				Key: now.key, Version: m.appendVersion(now.version.Version[:0]),
				CreateRevision: revision(created), ModRevision: m.revision(), Writes: s.ColumnInt64(4),
			}
			if !keysOnly {
				now.version.Data = s.ColumnRawBlob(5)
			}
			return &now.version, nil
		}
		if created <= r.at {
			return r.versionBefore(now.key, m.seq, keysOnly)
		}
	}
	if order >= 0 {
		return r.versionBefore(gone.key, gone.seq, keysOnly)
	}
	return nil, nil
}

// versionBefore returns what was stored of a life of a resource that has a later row.
func (r *historyRead) versionBefore(key []byte, later int64, keysOnly bool) (*driver.Version, error) {
	seq, err := r.conn.rowAt(later, r.at)
	if seq == 0 || err != nil {
		return nil, err
	}
	row, err := r.conn.readLogRecord(seq, !keysOnly)
	if err != nil {
		return nil, err
	}
	return row.version(key), nil
}

// deletions are the keys of which something was deleted after a row of the log, in order, each with the first such row.
type deletions struct {
	conn   *conn
	after  int64
	to     []byte
	filter *driver.Filter
	key    []byte
	seq    int64
	atEnd  bool
}

func (d *deletions) next() error { return d.seek(append(d.key, 0)) }

// seek goes to the first key from one on.
func (d *deletions) seek(from []byte) error {
	for !d.atEnd {
		if d.filter != nil {
			var ok bool
			if from, ok = d.filter.Seek(from); !ok {
				break
			}
		}
		there, err := d.readFrom(from)
		if err != nil {
			return err
		}
		if !there {
			break
		}
		if d.filter != nil {
			k, err := key.Parse(d.key)
			if err != nil {
				return err
			}
			if !d.filter.Match(&k) {
				from = d.key
				continue
			}
		}
		if d.seq > d.after {
			return nil
		}
		// Those of the key that are not wanted may be many.
		if there, err = d.readAfter(); there || err != nil {
			return err
		}
		from = append(d.key, 0)
	}
	d.atEnd = true
	return nil
}

// readFrom reads the readFrom deletion from a key on.
func (d *deletions) readFrom(from []byte) (there bool, err error) {
	s, err := d.conn.stmt(goneFrom)
	if err != nil {
		return false, err
	}
	if err := errors.Join(bindBytes(s, 1, from), s.BindBlob(2, d.to)); err != nil {
		return false, err
	}
	if there = s.Step(); there {
		d.key, d.seq = s.ColumnBlob(0, nil), s.ColumnInt64(1)
	}
	return there, finish(s)
}

// readAfter reads the first deletion of the key that comes after the row.
func (d *deletions) readAfter() (there bool, err error) {
	s, err := d.conn.stmt(goneAfter)
	if err != nil {
		return false, err
	}
	if err := errors.Join(s.BindBlob(1, d.key), s.BindInt64(2, d.after)); err != nil {
		return false, err
	}
	if there = s.Step(); there {
		d.seq = s.ColumnInt64(0)
	}
	return there, finish(s)
}
