package sqlite

import (
	"errors"
	"time"
)

// retention bounds the log. The writer prunes as it writes, in its own transactions, so one process at a time does it and
// an idle store is left alone.
type retention struct {
	age    time.Duration
	rows   int64
	looked int64 // the number of the newest row when nothing was left to prune
}

// The writer looks at the log's end again after so many rows, and deletes so many at most in one transaction: more than come
// in, so that it catches up, and few enough to delay nobody. The newest rows are always kept, so that watches which keep up
// are never cut off, whatever the retention.
const (
	pruneEvery = 256
	pruneStep  = 4 * pruneEvery
	pruneNever = 4 * batchChanges
)

// prune deletes old rows from the log.
func (l *retention) prune(t *txn) error {
	if t.last.seq-l.looked < pruneEvery {
		return nil
	}
	first, at, err := t.conn.oldest()
	if err != nil {
		return err
	}
	kept := t.last.seq - pruneNever + 1
	low, since := min(kept, t.last.seq-l.rows+1), t.at-l.age.Milliseconds()
	if first >= kept || first >= low && at >= since {
		l.looked = t.last.seq
		return nil
	}
	s, err := t.conn.stmt(prune)
	if err != nil {
		return err
	}
	// A batch may bring more rows than a step.
	step := max(pruneStep, 2*(t.last.seq-t.begun))
	if err := errors.Join(s.BindInt64(1, min(first+step, kept)), s.BindInt64(2, low), s.BindInt64(3, since)); err != nil {
		return err
	}
	return s.Exec()
}

// oldest returns the number and the time of the log's first row.
func (c *conn) oldest() (seq, at int64, err error) {
	s, err := c.stmt(oldest)
	if err != nil {
		return 0, 0, err
	}
	if s.Step() {
		seq, at = s.ColumnInt64(0), s.ColumnInt64(1)
	}
	return seq, at, finish(s)
}
