package bboltstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	bolt "go.etcd.io/bbolt"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
)

// source returns the changes of the file. driver.Sequence compares their numbers.
type source struct {
	driver.Sequence
	file *file
}

var _ driver.Prover[uint64] = source{}

var everything = driver.Filter{Group: storage.Wildcard, Kind: storage.Wildcard, Partition: storage.Wildcard, Namespace: storage.Wildcard}

// Run implements driver.Source. This process makes all commits, and signals each.
func (s source) Run(ctx context.Context, ready func(uint64), publish func([]*driver.Event[uint64], uint64)) error {
	at, err := s.Newest(ctx)
	if err != nil {
		return err
	}
	ready(at)
	for {
		committed := *s.file.movedCh.Load() // loaded before the read, so that no commit in between is missed
		for more := true; more; {
			var events []*driver.Event[uint64]
			if events, at, more, err = s.file.page(at, &everything, 1000); err != nil {
				return err
			}
			publish(events, at)
		}
		select {
		case <-committed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// History implements driver.Source.
func (s source) History(from uint64, f *driver.Filter) driver.History[uint64] {
	return driver.Pages(from, func(_ context.Context, from uint64, limit int) ([]*driver.Event[uint64], uint64, bool, error) {
		return s.file.page(from, f, limit)
	})
}

// Newest implements driver.Prover. Run has published the change, or will when it receives the signal of the commit.
func (s source) Newest(context.Context) (at uint64, err error) {
	err = s.file.view(func(tx *bolt.Tx) error {
		at = newest(tx)
		return nil
	})
	return at, err
}

// page reads about limit changes after a number, and returns the number that it has reached.
func (f *file) page(from uint64, filter *driver.Filter, limit int) (events []*driver.Event[uint64], end uint64, more bool, err error) {
	end = from
	err = f.view(func(tx *bolt.Tx) error {
		c := tx.Bucket(logBucket).Cursor()
		if k, _ := c.Seek(encodeNumber(from)); k == nil || binary.BigEndian.Uint64(k) != from {
			return fmt.Errorf("%w: the log does not contain this change any more", storage.ErrCompacted)
		}
		k, row := c.Next()
		for seen, size := 1, 0; k != nil && !more; seen++ {
			ev, err := readEntry(k, row)
			if err != nil {
				return err
			}
			size += ev.Size
			full := seen >= limit || size >= driver.PageBytes
			end, ev.CommitContinues = ev.At, full && ev.Commit != 0 && ev.Commit != int64(ev.At)
			if ev.CommitContinues || filter.Match(&ev.Key) {
				events = append(events, ev)
			}
			k, row = c.Next()
			more = full && k != nil
		}
		return nil
	})
	return events, end, more, err
}

// readEntry returns a row of the log as an event. The row's key is the number of the change and the key of the resource;
// txn.carryOut has written the rest.
func readEntry(k, row []byte) (*driver.Event[uint64], error) {
	parsed, err := key.Parse(k[8:])
	if err != nil || len(row) < 9 {
		return nil, errors.New("a row of the log is malformed")
	}
	ev := &driver.Event[uint64]{Key: parsed, Delete: row[0] == deleted, Size: len(row)}
	ev.At, ev.Commit = binary.BigEndian.Uint64(k), int64(binary.BigEndian.Uint64(row[1:]))
	ev.Resource, ev.Damage = decodeRow(parsed, row[9:]) // damage ends only the matching watches
	return ev, nil
}
