package sqlite

import "errors"

// floors are the rows of the log that bound history from below: followed <= horizon, pruned <= followed. A store that was made by this
// program has one horizon; in one that was upgraded, changes can be followed for a while from before it can be read.
type floors struct{ followed, horizon, pruned int64 }

// sweep deletes rows that no history needs any more: what the rows before the horizon have replaced, and those of them that are
// deletions. It looks at so many of them at most. Each tells which row it replaced, so nothing is searched for, and how far this has
// come stands in the file, for the next transaction of any process.
//
// The row at the horizon is left alone even if it is a deletion: it proves to who reads or follows from there that the position is one
// of this log.
func (t *txn) sweep(most int64) (done bool, err error) {
	if t.kept.pruned >= t.kept.followed {
		return true, nil
	}
	rows, to, err := t.conn.outdated(t.kept.pruned, t.kept.followed, most)
	if err != nil {
		return false, err
	}
	for i := range rows {
		if err := t.conn.drop(&rows[i]); err != nil {
			return false, err
		}
	}
	t.kept.pruned = to
	return to == t.kept.followed, t.conn.execWith(movePruned, to)
}

// outdatedRow is a row of the log from before the horizon.
type outdatedRow struct {
	seq, prev int64
	gone      []byte // the key, of a deletion
}

// outdated returns rows from one number up to another, at most so many, and so that no transaction frees many pages at once; end is
// the number after them.
func (c *conn) outdated(from, to, most int64) (rows []outdatedRow, end int64, err error) {
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
			row.gone = s.ColumnBlob(2, nil)
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

// drop deletes what a row makes superfluous.
func (c *conn) drop(row *outdatedRow) error {
	if row.prev != 0 {
		if err := c.execWith(prune, row.prev); err != nil {
			return err
		}
	}
	if row.gone == nil {
		return nil
	}
	if err := c.execWith(prune, row.seq); err != nil {
		return err
	}
	s, err := c.stmt(pruneGone)
	if err != nil {
		return err
	}
	if err := errors.Join(s.BindBlob(1, row.gone), s.BindInt64(2, row.seq)); err != nil {
		return err
	}
	return s.Exec()
}
