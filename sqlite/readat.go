package sqlite

import (
	"bytes"
	"context"
	"errors"

	"github.com/ncruces/go-sqlite3"

	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
)

// ReadAt implements driver.Historian. Every read sees the newest commit of the file, so a read of the present is strong
// and final.
func (d *database) ReadAt(ctx context.Context, q *driver.HistoryQuery[position], add func(*driver.Version) error) (p driver.HistoryPage[position], err error) {
	var refused error // error of add
	err = d.inSnapshot(ctx, "read the resources", func(c *conn) error {
		sp, err := c.readableRange()
		if err != nil {
			return err
		}
		if q.RefuseMoved {
			if err := readError(ctx, sp.fence); err != nil {
				return err
			}
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

// keyRecordBytes is the approximate memory of a record without its resource.
const keyRecordBytes = 640

// historyRead reads the store as it was at a row of the log.
//
// It merges two lists in key order: the present resources, mostly unchanged since, and the later deletions. For each key that
// changed, it follows the chain back to the row.
type historyRead struct {
	conn   *conn
	query  *driver.HistoryQuery[position]
	at     int64
	newest int64
}

// visit is called with a version. It reports whether to continue.
type visit func(*driver.Version) (more bool, err error)

// visitAll visits the versions stored at the row, in key order.
func (r *historyRead) visitAll(from []byte, keysOnly bool, call visit) (err error) {
	statement := "present-versions"
	if keysOnly {
		statement = "present-keys"
	}
	present, err := r.conn.iterate(statement, from, r.query.To, r.query.Filter)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ignoreRepeated(present.close(), err)) }()
	deleted := deletions{conn: r.conn, after: r.at, to: present.to, filter: r.query.Filter, atEnd: r.newest == r.at}
	if err := deleted.seek(from); err != nil {
		return err
	}
	exists, err := present.next()
	for more := true; more && err == nil && (exists || !deleted.atEnd); {
		order := -1
		switch {
		case !exists:
			order = 1
		case !deleted.atEnd:
			order = bytes.Compare(present.key, deleted.key)
		}
		var v *driver.Version
		if v, err = r.stateOf(present, &deleted, order, keysOnly); v != nil && err == nil {
			more, err = call(v)
		}
		if order <= 0 && more && err == nil {
			exists, err = present.next()
		}
		if order >= 0 && more && err == nil {
			err = deleted.next()
		}
	}
	return err
}

// stateOf returns the version stored under the lower of two keys, or nil. It considers the present resource if order is
// at most 0, and the deleted one if order is at least 0.
func (r *historyRead) stateOf(present *keyIterator, deleted *deletions, order int, keysOnly bool) (*driver.Version, error) {
	if order <= 0 {
		s := present.stmt
		m, created := position{s.ColumnInt64(1), s.ColumnInt64(2)}, s.ColumnInt64(4)
		if m.seq <= r.at {
			present.version = driver.Version{
				Key: present.key, Version: m.appendVersion(present.version.Version[:0]),
				CreateRevision: revision(created), ModRevision: revision(s.ColumnInt64(3)), Writes: s.ColumnInt64(5),
			}
			if !keysOnly {
				present.version.Data = s.ColumnRawBlob(6)
			}
			return &present.version, nil
		}
		if created <= r.at {
			return r.versionBefore(present.key, m.seq, keysOnly)
		}
	}
	if order >= 0 {
		return r.versionBefore(deleted.key, deleted.seq, keysOnly)
	}
	return nil, nil
}

// versionBefore returns the version at the row, given a later row of the same chain, or nil.
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

// deletions iterates in order over the keys with deletions after a row of the log, each with its first such deletion.
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

// seek advances to the first key at or after from.
func (d *deletions) seek(from []byte) error {
	for !d.atEnd {
		if d.filter != nil {
			var ok bool
			if from, ok = d.filter.Seek(from); !ok {
				break
			}
		}
		exists, err := d.readFrom(from)
		if err != nil {
			return err
		}
		if !exists {
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
		// Skip the earlier deletions of the key at once, because there may be many.
		if exists, err = d.readAfter(); exists || err != nil {
			return err
		}
		from = append(d.key, 0)
	}
	d.atEnd = true
	return nil
}

// readFrom reads the first deletion at or after a key.
func (d *deletions) readFrom(from []byte) (exists bool, err error) {
	return d.conn.queryRow("gone-from", func(s *sqlite3.Stmt) { d.key, d.seq = s.ColumnBlob(0, nil), s.ColumnInt64(1) }, from, d.to)
}

// readAfter reads the first deletion of the current key after the row.
func (d *deletions) readAfter() (exists bool, err error) {
	return d.conn.queryRow("gone-after", func(s *sqlite3.Stmt) { d.seq = s.ColumnInt64(0) }, d.key, d.after)
}
