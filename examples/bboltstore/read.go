package bboltstore

import (
	"bytes"
	"context"

	bolt "go.etcd.io/bbolt"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Get implements driver.Driver. There is one copy of the data, so eventual reads are strong ones.
func (s *store) Get(_ context.Context, _ storage.ReadConsistency, k driver.Key) (res *resourcepb.Resource, err error) {
	err = s.file.view("read", func(tx *bolt.Tx) error {
		row := k.Bytes()
		value := tx.Bucket(resourcesBucket).Get(row)
		if value == nil {
			return nil
		}
		r, err := readRecord(row, value)
		if err == nil {
			res, err = driver.Decode(k, r.data, string(r.version))
		}
		return err
	})
	return res, err
}

// Scan implements driver.Driver.
func (s *store) Scan(ctx context.Context, _ storage.ReadConsistency, f *driver.Filter, rows driver.Rows) (at uint64, err error) {
	prefix, exact := f.Prefix()
	err = s.file.view("scan", func(tx *bolt.Tx) error {
		at = newest(tx)
		return s.each(ctx, tx.Bucket(resourcesBucket), prefix, func(row, value []byte) error {
			if !exact {
				if k, err := key.Parse(row); err != nil || !f.Match(&k) {
					return err
				}
			}
			r, err := readRecord(row, value)
			if err != nil {
				return err
			}
			return rows.Add(row, r.version, r.data)
		})
	})
	return at, err
}

// Children implements driver.Driver.
func (s *store) Children(ctx context.Context, owner driver.Key, uid string) (ids []*resourcepb.ID, err error) {
	prefix := childrenOf(owner, uid)
	err = s.file.view("children", func(tx *bolt.Tx) error {
		return s.each(ctx, tx.Bucket(childrenBucket), prefix, func(row, value []byte) error {
			k, err := key.Parse(row[len(prefix):])
			if err != nil {
				return err
			}
			var uid, groupVersion []byte
			err = split(value, &uid, &groupVersion)
			ids = append(ids, k.ID(string(uid), string(groupVersion)))
			return err
		})
	})
	return ids, err
}

// each calls do for the rows that begin with prefix, in order, until the caller has no more time or the handle is closed.
func (s *store) each(ctx context.Context, b *bolt.Bucket, prefix []byte, do func(row, value []byte) error) error {
	c := b.Cursor()
	for row, value := c.Seek(prefix); row != nil && bytes.HasPrefix(row, prefix); row, value = c.Next() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.closed:
			return storage.ErrClosed
		default:
		}
		if err := do(row, value); err != nil {
			return err
		}
	}
	return nil
}
