package bboltstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"

	bolt "go.etcd.io/bbolt"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
)

// The kinds of rows in the log.
const (
	written = 'w'
	deleted = 'd'
)

// entries are rows that one transaction adds to the log. The bucket's sequence counts the rows.
type entries struct {
	log    *bolt.Bucket
	number uint64
	commit []byte // the number of the first of several, nothing where there is one only
	left   int
}

func newEntries(tx *bolt.Tx, n int) *entries {
	return &entries{log: tx.Bucket(logBucket), number: newest(tx), left: n}
}

// next returns the number of the entry that is added next.
func (e *entries) next() uint64 {
	e.number = after(e.number)
	if e.commit == nil && e.left > 1 {
		e.commit = encodeNumber(e.number)
	}
	e.left--
	return e.number
}

func (e *entries) add(kind byte, row, version, data []byte) error {
	goesOn := byte(min(e.left, 1))
	if err := e.log.SetSequence(e.log.Sequence() + 1); err != nil {
		return err
	}
	return e.log.Put(encodeNumber(e.number), join([]byte{kind, goesOn}, e.commit, row, version, data))
}

// trim removes the oldest rows until there are keep of them, and the one before, after which history begins.
func (e *entries) trim(keep uint64) error {
	rows := e.log.Sequence()
	c := e.log.Cursor()
	for ; rows > keep+1; rows-- {
		number, _ := c.First()
		if err := e.log.Delete(number); err != nil {
			return err
		}
	}
	return e.log.SetSequence(rows)
}

// foundLog adds a first row, which is no change, for history to begin after.
func foundLog(tx *bolt.Tx) error {
	b := tx.Bucket(logBucket)
	if err := b.SetSequence(1); err != nil {
		return err
	}
	return b.Put(encodeNumber(after(0)), nil)
}

// newest returns the number of the newest change.
func newest(tx *bolt.Tx) uint64 {
	number, _ := tx.Bucket(logBucket).Cursor().Last()
	return binary.BigEndian.Uint64(number)
}

func (s *store) compact(ctx context.Context) error {
	return s.update(ctx, "compact", func(tx *bolt.Tx) (bool, error) { return true, newEntries(tx, 0).trim(0) })
}

// page reads about limit changes after a number.
func (s *store) page(from uint64, f *driver.Filter, limit int) (events []*driver.Event[uint64], end uint64, more bool, err error) {
	err = s.file.view("read history", func(tx *bolt.Tx) error {
		c := tx.Bucket(logBucket).Cursor()
		if number, _ := c.Seek(encodeNumber(from)); !bytes.Equal(number, encodeNumber(from)) {
			return fmt.Errorf("%w: the log does not go back to this cursor", storage.ErrCompacted)
		}
		end = from
		size := 0
		number, row := c.Next()
		for seen := 1; number != nil && !more; seen++ {
			ev, goesOn, err := readEntry(row)
			if err != nil {
				return err
			}
			size += len(row)
			full := seen >= limit || size >= driver.PageBytes
			end = binary.BigEndian.Uint64(number)
			ev.At, ev.Cut = end, full && goesOn
			if ev.Cut || f.Match(&ev.Key) {
				events = append(events, ev)
			}
			number, row = c.Next()
			more = full && number != nil
		}
		return nil
	})
	return events, end, more, err
}

// readEntry returns a row of the log as an event, and whether its commit goes on with the next row.
func readEntry(row []byte) (ev *driver.Event[uint64], goesOn bool, err error) {
	var kind, commit, k, version, data []byte
	if err := split(row, &kind, &commit, &k, &version, &data); err != nil || len(kind) != 2 {
		return nil, false, errRecord
	}
	ev = &driver.Event[uint64]{Delete: kind[0] == deleted, Size: len(data)}
	if ev.Key, err = key.Parse(k); err != nil {
		return nil, false, err
	}
	if len(commit) == 8 {
		ev.Commit = int64(binary.BigEndian.Uint64(commit))
	}
	// An event that cannot be read ends the watches that want it, and no others.
	ev.Resource, ev.Damage = driver.Decode(ev.Key, data, string(version))
	return ev, kind[1] == 1, nil
}
