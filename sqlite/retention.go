package sqlite

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"time"
)

// retention bounds how far history goes back. The writer prunes as it writes, in its own transactions, so one process at a time does
// it and an idle store is left alone.
type retention struct {
	age             time.Duration
	minAge          time.Duration // what is younger stays, whatever the bounds
	rows            int64
	bytes           int64
	checkedRow      int64 // the number of the newest row when nothing was left to prune
	bytesSinceCheck int64 // bytes that this process has written since it looked
	sizes           logSizes
}

// prune moves the horizon, and deletes rows that nobody can ask for any more.
func (l *retention) prune(t *txn) error {
	l.bytesSinceCheck += t.bytes
	if t.last.seq-l.checkedRow < pruneEvery && l.bytesSinceCheck < min(pruneEveryBytes, l.bytes/4) {
		return nil
	}
	l.bytesSinceCheck = 0
	left, err := l.advance(t)
	if err != nil {
		return err
	}
	// Twice as many as may come in, so that this catches up with changes, and with horizons that were moved far.
	swept, err := t.sweep(max(pruneStep, 2*(t.last.seq-t.before.seq)))
	if err != nil {
		return err
	}
	if !left && swept {
		l.checkedRow = t.last.seq
	}
	return nil
}

// advance moves the horizon by a step, if retention asks for it, and reports whether there may be more to do.
func (l *retention) advance(t *txn) (left bool, err error) {
	first, at, err := t.conn.oldestAfter(t.bounds.followed)
	if err != nil {
		return false, err
	}
	kept := t.last.seq - pruneNever + 1
	low, since := min(kept, t.last.seq-l.rows+1), t.at-l.age.Milliseconds()
	heavy, end, err := l.byteBound(t, first)
	if err != nil {
		return false, err
	}
	low = max(low, heavy)
	young := t.at - l.minAge.Milliseconds()
	if t.at-t.now > l.minAge.Milliseconds() {
		// The clock was set back. Nobody knows how old the rows are, and the log must not grow until it has caught up.
		young = math.MaxInt64
	}
	if at >= young || first >= low && (first >= kept || at >= since) {
		return false, nil
	}
	s, err := t.conn.stmt(reach)
	if err != nil {
		return false, err
	}
	// A batch may bring more rows than a step.
	step := max(pruneStep, 2*(t.last.seq-t.before.seq))
	until := min(first+step, end, max(kept, low))
	bounds := errors.Join(s.BindInt64(2, until), s.BindInt64(3, low), s.BindInt64(4, since), s.BindInt64(5, young))
	if err := errors.Join(s.BindInt64(1, t.bounds.followed), bounds); err != nil {
		return false, err
	}
	var reached int64
	if s.Step() {
		reached = s.ColumnInt64(0)
	}
	if err := finish(s); err != nil || reached <= t.bounds.followed {
		return false, err
	}
	t.bounds.followed, t.bounds.horizon = reached, max(t.bounds.horizon, reached)
	return true, t.conn.execWith(moveFollowed, reached)
}

// reset has the log looked at anew, after a transaction that was perhaps undone: rows of it were counted, and others may get
// their numbers.
func (l *retention) reset() { l.checkedRow, l.sizes = 0, logSizes{} }

// byteBound returns the number of the first row that the bound in bytes leaves, 0 if it leaves all, and where a step that deletes
// rows from first on ends, so that no transaction frees many pages at once.
func (l *retention) byteBound(t *txn, first int64) (low, end int64, err error) {
	if l.sizes.newest == 0 {
		// Where all of the database has no more the log has not either, and nobody needs to know how much it is.
		if size, err := t.conn.bytesInUse(); err != nil || size <= l.bytes {
			return 0, math.MaxInt64, err
		}
	}
	l.sizes.newest = max(l.sizes.newest, first-1)
	if err := l.sizes.update(t.conn, first); err != nil {
		return 0, 0, err
	}
	return l.sizes.rowAfter(l.sizes.total - l.bytes), max(first+1, l.sizes.rowAfter(l.sizes.bytesBefore(first)+pruneStepBytes)), nil
}

// logSizes knows how many bytes of resources stand in the log before a row, give or take a few rows. It is worked out from the log
// itself, so the rows of other processes count, and kept, so that each row is looked at once.
type logSizes struct {
	total   int64 // up to newest
	newest  int64
	samples []sample
}

// sample says that so many bytes stand in the log before a row.
type sample struct{ seq, before int64 }

// sampleEvery is the most bytes and rows between two samples.
const (
	sampleEvery     = 64
	sampleEveryByte = 1 << 20
)

// update takes account of what has come to the log, and of what has left it.
func (z *logSizes) update(c *conn, first int64) error {
	s, err := c.stmt(weigh)
	if err != nil {
		return err
	}
	if err := s.BindInt64(1, z.newest); err != nil {
		return err
	}
	for s.Step() {
		seq := s.ColumnInt64(0)
		last := len(z.samples) - 1
		if last < 0 || seq-z.samples[last].seq >= sampleEvery || z.total-z.samples[last].before >= sampleEveryByte {
			z.samples = append(z.samples, sample{seq, z.total})
		}
		z.newest, z.total = seq, z.total+s.ColumnInt64(1)
	}
	gone := 0
	for gone+1 < len(z.samples) && z.samples[gone+1].seq <= first {
		gone++
	}
	z.samples = slices.Delete(z.samples, 0, gone)
	return finish(s)
}

// rowAfter returns a row before which at least so many bytes stand, but not many more.
func (z *logSizes) rowAfter(bytes int64) int64 {
	i, _ := slices.BinarySearchFunc(z.samples, bytes, func(s sample, bytes int64) int { return cmp.Compare(s.before, bytes) })
	if i == len(z.samples) {
		return z.newest
	}
	return z.samples[i].seq
}

// bytesBefore returns about how many bytes stand bytesBefore a row.
func (z *logSizes) bytesBefore(seq int64) int64 {
	i, _ := slices.BinarySearchFunc(z.samples, seq, func(s sample, seq int64) int { return cmp.Compare(s.seq, seq) })
	if i == len(z.samples) {
		return z.total
	}
	return z.samples[i].before
}

// bytesInUse returns the bytes of the pages in use.
func (c *conn) bytesInUse() (int64, error) {
	s, err := c.stmt(inUse)
	if err != nil {
		return 0, err
	}
	var bytes int64
	if s.Step() {
		bytes = s.ColumnInt64(0)
	}
	return bytes, finish(s)
}

// oldestAfter returns the number and the time of the log's first row after another.
func (c *conn) oldestAfter(after int64) (seq, at int64, err error) {
	s, err := c.stmt(oldest)
	if err != nil {
		return 0, 0, err
	}
	if err := s.BindInt64(1, after); err != nil {
		return 0, 0, err
	}
	if s.Step() {
		seq, at = s.ColumnInt64(0), s.ColumnInt64(1)
	}
	return seq, at, finish(s)
}

// sweep deletes rows that no history needs any more: what the rows before the horizon have replaced, and those of them that are
// deletions. It looks at so many of them at most. Each tells which row it replaced, so nothing is searched for, and how far this has
// come stands in the file, for the next transaction of any process.
//
// The row at the horizon is left alone even if it is a deletion: it proves to who reads or follows from there that the position is one
// of this log.
func (t *txn) sweep(most int64) (done bool, err error) {
	if t.bounds.pruned >= t.bounds.followed {
		return true, nil
	}
	rows, to, err := t.conn.readOutdated(t.bounds.pruned, t.bounds.followed, most)
	if err != nil {
		return false, err
	}
	for i := range rows {
		if err := t.conn.deleteOutdated(&rows[i]); err != nil {
			return false, err
		}
	}
	t.bounds.pruned = to
	return to == t.bounds.followed, t.conn.execWith(movePruned, to)
}

// outdatedRow is a row of the log from before the horizon.
type outdatedRow struct {
	seq, prev  int64
	deletedKey []byte // the key, of a deletion
}

// readOutdated returns rows from one number up to another, at most so many, and so that no transaction frees many pages at once; end is
// the number after them.
func (c *conn) readOutdated(from, to, most int64) (rows []outdatedRow, end int64, err error) {
	s, err := c.stmt(outdated)
	if err != nil {
		return nil, 0, err
	}
	if err := errors.Join(s.BindInt64(1, from), s.BindInt64(2, to), s.BindInt64(3, most)); err != nil {
		return nil, 0, err
	}
	end = to
	for bytes := int64(0); s.Step(); {
		row := outdatedRow{seq: s.ColumnInt64(0), prev: s.ColumnInt64(1)}
		if s.ColumnBool(3) {
			row.deletedKey = s.ColumnBlob(2, nil)
		}
		rows = append(rows, row)
		bytes += s.ColumnInt64(4)
		if int64(len(rows)) == most || bytes >= pruneStepBytes {
			end = row.seq + 1
			break
		}
	}
	return rows, end, finish(s)
}

// deleteOutdated deletes what a row makes superfluous.
func (c *conn) deleteOutdated(row *outdatedRow) error {
	if row.prev != 0 {
		if err := c.execWith(prune, row.prev); err != nil {
			return err
		}
	}
	if row.deletedKey == nil {
		return nil
	}
	if err := c.execWith(prune, row.seq); err != nil {
		return err
	}
	s, err := c.stmt(pruneGone)
	if err != nil {
		return err
	}
	if err := errors.Join(s.BindBlob(1, row.deletedKey), s.BindInt64(2, row.seq)); err != nil {
		return err
	}
	return s.Exec()
}
