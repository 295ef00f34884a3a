package sqlite

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/ncruces/go-sqlite3"
)

// retention bounds the length of history. The writer prunes in its own transactions, so only one process prunes at a
// time, and an idle store is not pruned.
type retention struct {
	age             time.Duration
	minAge          time.Duration // younger changes stay regardless of the bounds
	rows            int64
	bytes           int64
	checkedRow      int64 // number of the newest row when pruning last caught up
	bytesSinceCheck int64 // bytes that this process wrote since the last check
	sizes           logSizes
}

// prune moves the horizon and deletes the rows that history no longer needs.
func (l *retention) prune(t *txn) error {
	l.bytesSinceCheck += t.bytes
	if t.last.seq-l.checkedRow < pruneEvery && l.bytesSinceCheck < min(pruneEveryBytes, l.bytes/4) {
		return nil
	}
	l.bytesSinceCheck = 0
	more, err := l.advance(t)
	if err != nil {
		return err
	}
	// Twice the number of new rows, so that pruning catches up with writes and with a horizon that moved far.
	caughtUp, err := t.sweep(max(pruneStep, 2*(t.last.seq-t.before.seq)))
	if err != nil {
		return err
	}
	if !more && caughtUp {
		l.checkedRow = t.last.seq
	}
	return nil
}

// advance moves the horizon by one step if a bound requires it. It reports whether there may be more to do.
func (l *retention) advance(t *txn) (more bool, err error) {
	first, at, err := t.conn.oldestAfter(t.bounds.followed)
	if err != nil {
		return false, err
	}
	kept := t.last.seq - pruneNever + 1
	low, since := min(kept, t.last.seq-l.rows+1), t.at-l.age.Milliseconds()
	byBytes, end, err := l.byteBound(t, first)
	if err != nil {
		return false, err
	}
	low = max(low, byBytes)
	young := t.at - l.minAge.Milliseconds()
	if t.at-t.now > l.minAge.Milliseconds() {
		// The clock was set back, so the age of the rows is unknown. Do not let the log grow until the clock catches
		// up.
		young = math.MaxInt64
	}
	if at >= young || first >= low && (first >= kept || at >= since) {
		return false, nil
	}
	// A batch may add more rows than a step.
	step := max(pruneStep, 2*(t.last.seq-t.before.seq))
	until := min(first+step, end, max(kept, low))
	var reached int64
	_, err = t.conn.queryRow("prune-limit", func(s *sqlite3.Stmt) { reached = s.ColumnInt64(0) }, t.bounds.followed, until, low, since, young)
	if err != nil || reached <= t.bounds.followed {
		return false, err
	}
	t.bounds.followed, t.bounds.horizon = reached, max(t.bounds.horizon, reached)
	return true, t.conn.exec("move-horizon", reached)
}

// reset discards the counts after a transaction that may have been rolled back. They include its rows, whose numbers
// may be used again.
func (l *retention) reset() { l.checkedRow, l.sizes = 0, logSizes{} }

// byteBound returns the first row that the bound in bytes keeps, or 0 if it keeps all. end is the end of a step that
// deletes rows from first on, so that no transaction frees many pages at once.
func (l *retention) byteBound(t *txn, first int64) (low, end int64, err error) {
	if l.sizes.newest == 0 {
		// If the whole database is within the bound, the log is too, and its size need not be computed.
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

// logSizes estimates the total size of the resources in the log before a row, to within a few rows. It reads the size
// of each row from the log once, so it includes the rows of other processes.
type logSizes struct {
	total   int64 // up to newest
	newest  int64
	samples []sample
}

// sample is the size of the log before a row.
type sample struct{ seq, before int64 }

// Maximum distance between two samples, in rows and bytes.
const (
	sampleEvery     = 64
	sampleEveryByte = 1 << 20
)

// update adds the new rows of the log and drops the samples of pruned rows.
func (z *logSizes) update(c *conn, first int64) error {
	s, err := c.query("row-sizes", z.newest)
	if err != nil {
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
	pruned := 0
	for pruned+1 < len(z.samples) && z.samples[pruned+1].seq <= first {
		pruned++
	}
	z.samples = slices.Delete(z.samples, 0, pruned)
	return finish(s)
}

// rowAfter returns a row with at least that many bytes before it, but not many more.
func (z *logSizes) rowAfter(bytes int64) int64 {
	i, _ := slices.BinarySearchFunc(z.samples, bytes, func(s sample, bytes int64) int { return cmp.Compare(s.before, bytes) })
	if i == len(z.samples) {
		return z.newest
	}
	return z.samples[i].seq
}

// bytesBefore returns the approximate number of bytes before a row.
func (z *logSizes) bytesBefore(seq int64) int64 {
	i, _ := slices.BinarySearchFunc(z.samples, seq, func(s sample, seq int64) int { return cmp.Compare(s.seq, seq) })
	if i == len(z.samples) {
		return z.total
	}
	return z.samples[i].before
}

// bytesInUse returns the size of the pages in use.
func (c *conn) bytesInUse() (bytes int64, err error) {
	_, err = c.queryRow("bytes-in-use", func(s *sqlite3.Stmt) { bytes = s.ColumnInt64(0) })
	return bytes, err
}

// oldestAfter returns the number and the time of the oldest row after another.
func (c *conn) oldestAfter(after int64) (seq, at int64, err error) {
	_, err = c.queryRow("oldest-row", func(s *sqlite3.Stmt) { seq, at = s.ColumnInt64(0), s.ColumnInt64(1) }, after)
	return seq, at, err
}

// sweep deletes rows that history no longer needs: those replaced by rows before the horizon, and deletions before it.
// It reads at most limit rows. Each row holds the number of the row it replaced, so no search is needed. The file
// records the progress for the next transaction of any process.
//
// The row at the horizon stays even if it is a deletion. It proves to readers and watches at that position that the
// position belongs to this log.
func (t *txn) sweep(limit int64) (done bool, err error) {
	if t.bounds.pruned >= t.bounds.followed {
		return true, nil
	}
	rows, to, err := t.conn.readOutdated(t.bounds.pruned, t.bounds.followed, limit)
	if err != nil {
		return false, err
	}
	for i := range rows {
		if err := t.conn.deleteOutdated(&rows[i]); err != nil {
			return false, err
		}
	}
	t.bounds.pruned = to
	return to == t.bounds.followed, t.conn.exec("move-pruned", to)
}

// outdatedRow is a row of the log before the horizon.
type outdatedRow struct {
	seq, prev  int64
	deletedKey []byte // key of a deletion, otherwise nil
}

// readOutdated returns at most limit rows between two numbers, fewer if deleting them would free many pages in one
// transaction. end is the number after the last one.
func (c *conn) readOutdated(from, to, limit int64) (rows []outdatedRow, end int64, err error) {
	s, err := c.query("outdated-rows", from, to, limit)
	if err != nil {
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
		if int64(len(rows)) == limit || bytes >= pruneStepBytes {
			end = row.seq + 1
			break
		}
	}
	return rows, end, finish(s)
}

// deleteOutdated deletes the rows that history no longer needs because of an outdated row.
func (c *conn) deleteOutdated(row *outdatedRow) error {
	if row.prev != 0 {
		if err := c.exec("delete-row", row.prev); err != nil {
			return err
		}
	}
	if row.deletedKey == nil {
		return nil
	}
	if err := c.exec("delete-row", row.seq); err != nil {
		return err
	}
	return c.exec("delete-gone", row.deletedKey, row.seq)
}
