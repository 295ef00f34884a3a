package sqlite

import (
	"errors"

	"github.com/ncruces/go-sqlite3"

	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
)

// keyIterator visits rows of resources in key order, within bounds and by a filter. It steps over a few mismatches and
// then seeks to the next possible match. A seek costs as much as a few steps.
type keyIterator struct {
	stmt       *sqlite3.Stmt
	filter     *driver.Filter // nil matches all keys
	to         []byte
	key        []byte // of the current row, valid until the next step
	mismatches int    // number since the last match or seek
	steps      int    // number of rows read
	atEnd      bool

	version driver.Version // reused for the current row
}

// maxMismatches is the number of mismatches before the iterator seeks.
const maxMismatches = 16

// iterate returns an iterator over a statement that reads key >= ?1 AND key < ?2. A nil key means no bound.
func (c *conn) iterate(statement string, from, to []byte, filter *driver.Filter) (*keyIterator, error) {
	stmt, err := c.query(statement)
	if err != nil {
		return nil, err
	}
	if to == nil {
		to = keyUpperBound
	}
	w := &keyIterator{stmt: stmt, filter: filter, to: to}
	if filter != nil {
		if _, exact := filter.Prefix(); exact {
			w.filter = nil // the bounds below select exactly its matches
		}
		if first, ok := filter.Seek(from); ok {
			from = first
		} else {
			w.atEnd = true
		}
		prefix, _ := filter.Prefix()
		if end := key.PrefixEnd(prefix); end != nil && string(end) < string(to) {
			w.to = end
		}
	}
	return w, w.seek(from)
}

func (w *keyIterator) seek(from []byte) error {
	w.mismatches = 0
	return errors.Join(w.stmt.Reset(), w.stmt.BindBlob(1, from), w.stmt.BindBlob(2, w.to))
}

// next advances to the next row. It returns false at the end and after an error.
func (w *keyIterator) next() (bool, error) {
	for !w.atEnd && w.stmt.Step() {
		w.steps++
		w.key = w.stmt.ColumnBlob(0, w.key[:0])
		if w.filter == nil {
			return true, nil
		}
		k, err := key.Parse(w.key)
		if err != nil {
			return false, err
		}
		if w.filter.Match(&k) {
			w.mismatches = 0
			return true, nil
		}
		if w.mismatches++; w.mismatches <= maxMismatches {
			continue
		}
		from, ok := w.filter.Seek(w.key)
		if !ok {
			break
		}
		if err := w.seek(from); err != nil {
			return false, err
		}
	}
	w.atEnd = true
	return false, w.stmt.Err()
}

// close resets the statement and returns the error of its last step.
func (w *keyIterator) close() error { return finish(w.stmt) }
