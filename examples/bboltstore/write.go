package bboltstore

import (
	"context"
	"fmt"

	bolt "go.etcd.io/bbolt"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
)

// change is a mutation that was decided to change something.
type change struct {
	*driver.Mutation
	row    []byte
	stored record // before
}

// Apply implements driver.Driver. It decides about all mutations first, and then carries out what they change.
func (s *store) Apply(ctx context.Context, mutations []driver.Mutation) error {
	return s.update(ctx, "write", func(tx *bolt.Tx) (changed bool, err error) {
		var changes []change
		for i := range mutations {
			m := &mutations[i]
			c := change{Mutation: m, row: m.Key.Bytes()}
			var found driver.Stored
			if value := tx.Bucket(resourcesBucket).Get(c.row); value != nil {
				if c.stored, err = readRecord(c.row, value); err != nil {
					return false, err
				}
				found = driver.Stored{Exists: true, Uid: string(c.stored.uid), Version: string(c.stored.version)}
			}
			changes1, err := m.Decide(found)
			if err != nil {
				return false, &storage.OpError{Index: i, Err: err}
			}
			if changes1 {
				changes = append(changes, c)
			}
		}
		return len(changes) > 0, s.change(tx, changes)
	})
}

// change carries out changes and adds them to the log.
func (s *store) change(tx *bolt.Tx, changes []change) error {
	log := newEntries(tx, len(changes))
	resources, children := tx.Bucket(resourcesBucket), tx.Bucket(childrenBucket)
	for _, c := range changes {
		number := log.next()
		if len(c.stored.child) > 0 {
			if err := children.Delete(c.stored.child); err != nil {
				return err
			}
		}
		if c.Verb == driver.Delete {
			if err := resources.Delete(c.row); err != nil {
				return err
			}
			if err := log.add(deleted, c.row, c.stored.version, c.stored.data); err != nil {
				return err
			}
			continue
		}
		data, err := driver.Encode(c.Resource)
		if err != nil {
			return err
		}
		c.Written = newVersion(number)
		r := record{version: []byte(c.Written), uid: []byte(c.Uid), child: childRow(c.Resource, c.row), data: data}
		if r.child != nil {
			id := c.Resource.GetId()
			if err := children.Put(r.child, join([]byte(id.GetUid()), []byte(id.GetType().GetGroupVersion()))); err != nil {
				return err
			}
		}
		if err := resources.Put(c.row, r.bytes()); err != nil {
			return err
		}
		if err := log.add(written, c.row, r.version, data); err != nil {
			return err
		}
	}
	return log.trim(s.history)
}

// update runs a write transaction, and commits it if there is something to commit.
func (s *store) update(ctx context.Context, what string, write func(tx *bolt.Tx) (changed bool, err error)) error {
	select {
	case s.file.writer <- struct{}{}:
		defer func() { <-s.file.writer }()
	case <-s.closed:
		return storage.ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	tx, err := s.file.db.Begin(true)
	if err != nil {
		return failed(what, err)
	}
	defer func() { _ = tx.Rollback() }() // nothing is left to roll back after Commit
	if changed, err := write(tx); err != nil || !changed {
		return failed(what, err)
	}
	if err := tx.Commit(); err != nil {
		// The page that makes it visible may have been written, and the flush after it have failed.
		return fmt.Errorf("%w: commit: %w", storage.ErrInconsistent, err)
	}
	s.file.committed()
	return nil
}
