package bboltstore

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

func get(tx *bolt.Tx, k driver.Key) (*resourcepb.Resource, error) {
	row := tx.Bucket(resourcesBucket).Get(k.Bytes())
	if row == nil {
		return nil, nil
	}
	return decodeRow(k, row)
}

// Get implements driver.Driver. There is one copy of the data, so eventual reads are strong ones.
func (s *store) Get(_ context.Context, _ storage.ReadConsistency, k driver.Key) (res *resourcepb.Resource, err error) {
	err = s.view(func(tx *bolt.Tx) error {
		res, err = get(tx, k)
		return err
	})
	return res, err
}

// List implements driver.Driver.
func (s *store) List(ctx context.Context, _ storage.ReadConsistency, f *driver.Filter, rows driver.Rows) error {
	return s.view(func(tx *bolt.Tx) error { return s.matching(ctx, tx, f, rows.Add) })
}

// matching calls add with the key, the version and the encoded resource of each match, in key order.
func (s *store) matching(ctx context.Context, tx *bolt.Tx, f *driver.Filter, add func(k, version, data []byte) error) error {
	prefix, exact := f.Prefix()
	return s.each(ctx, tx.Bucket(resourcesBucket), prefix, func(k, row []byte) error {
		if !exact {
			if parsed, err := key.Parse(k); err != nil || !f.Match(&parsed) {
				return err
			}
		}
		version, data, _ := bytes.Cut(row, []byte{0})
		return add(k, version, data)
	})
}

// Children implements driver.Driver.
func (s *store) Children(ctx context.Context, owner driver.Key, uid string) (ids []*resourcepb.ID, err error) {
	prefix := childrenOf(owner, uid)
	err = s.view(func(tx *bolt.Tx) error {
		return s.each(ctx, tx.Bucket(childrenBucket), prefix, func(k, _ []byte) error {
			child, err := key.Parse(k[len(prefix):])
			if err != nil {
				return err
			}
			res, err := get(tx, child)
			if bytes.Equal(childKey(res), k) { // false after the replacement of a damaged resource, whose owner was unknown
				ids = append(ids, res.GetId())
			}
			return err
		})
	})
	return ids, err
}

// each calls do for the rows with a key prefix, in order, until the caller's context ends or the handle is closed.
func (s *store) each(ctx context.Context, b *bolt.Bucket, prefix []byte, do func(k, row []byte) error) error {
	c := b.Cursor()
	for k, row := c.Seek(prefix); k != nil && bytes.HasPrefix(k, prefix); k, row = c.Next() {
		if err := cmp.Or(do(k, row), ctx.Err(), context.Cause(s.closed)); err != nil {
			return err
		}
	}
	return nil
}

func (s *store) copyOf(ctx context.Context, f *driver.Filter) (*listing, error) {
	l := &listing{}
	err := s.view(func(tx *bolt.Tx) error {
		l.at = newest(tx)
		return s.matching(ctx, tx, f, func(k, version, data []byte) error {
			l.rows = append(l.rows, driver.Version{Key: bytes.Clone(k), Version: bytes.Clone(version), Data: bytes.Clone(data)})
			return nil
		})
	})
	return l, err
}

// Snapshot implements driver.Snapshotter.
func (s *store) Snapshot(ctx context.Context, _ time.Time, f *driver.Filter) (driver.Snapshot, uint64, error) {
	l, err := s.copyOf(ctx, f)
	return l, l.at, err
}

// Page implements driver.Pager. The token of the next page is the name of the listing and the number of its first row.
func (s *store) Page(ctx context.Context, _ storage.ReadConsistency, f *driver.Filter, from []byte, limit int) (page driver.ListedPage[uint64], err error) {
	var name [16]byte
	var l *listing
	begin := 0
	if from == nil {
		_, _ = rand.Read(name[:]) // it never fails
		if l, err = s.copyOf(ctx, f); err != nil {
			return page, err
		}
	} else if l, begin, err = s.listings.find(&name, from); err != nil {
		return page, err
	}
	page.At = l.at
	end := begin
	for size := 0; end < len(l.rows) && end-begin < limit && size < driver.PageBytes; end++ {
		res, err := l.rows[end].Decode()
		var damaged *storage.DamagedError
		switch {
		case errors.As(err, &damaged):
			page.Damaged = append(page.Damaged, damaged)
		case err != nil:
			return page, err
		default:
			page.Resources = append(page.Resources, res)
		}
		size += len(l.rows[end].Data)
	}
	if end < len(l.rows) {
		page.Next = binary.AppendUvarint(name[:], uint64(end))
		s.listings.keep(name, l)
	}
	return page, nil
}
