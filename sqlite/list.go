package sqlite

import (
	"context"
	"fmt"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/check"
	"github.com/ashlar-dev/storage/internal/key"
	"github.com/ashlar-dev/storage/internal/message"
	"github.com/ashlar-dev/storage/resourcepb"
)

// row is a stored resource, copied out.
type row struct {
	at        mark
	key, data []byte
}

func (r row) decode() (*resourcepb.Resource, error) {
	return message.DecodeAt(r.key, r.data, r.at.version())
}

// List implements storage.Backend.
func (s *Backend) List(ctx context.Context, consistency storage.ReadConsistency, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, namePrefix string) ([]*resourcepb.Resource, error) {
	filter, err := check.Filter(typ, tenancy, namePrefix)
	if err := s.enter(ctx, check.Consistency(consistency), err); err != nil {
		return nil, err
	}
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	var rows []row
	var arena arena
	err = s.scan(ctx, &filter, func(r row) error {
		rows = append(rows, arena.row(r))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list: %w", err)
	}
	list, err := decodeAll(rows)
	if err != nil {
		return nil, fmt.Errorf("list: %w", err)
	}
	return list, nil
}

func decodeAll(rows []row) ([]*resourcepb.Resource, error) {
	if len(rows) == 0 {
		return nil, nil
	}
	resources := make([]*resourcepb.Resource, len(rows))
	for i, r := range rows {
		res, err := r.decode()
		if err != nil {
			return nil, err
		}
		resources[i] = res
	}
	return resources, nil
}

// scan reads what matches a filter, in key order, in one statement and so from one snapshot. The bytes of a row are valid until
// each returns.
func (s *Backend) scan(ctx context.Context, filter *key.Filter, each func(row) error) error {
	c, err := s.readers.take(ctx)
	if err != nil {
		return err
	}
	defer s.readers.give(c)
	if err := c.scan(filter, each); err != nil {
		return failed(ctx, "read the rows", err)
	}
	return nil
}

// snapshot is scan, and the position in history that belongs to it.
func (s *Backend) snapshot(ctx context.Context, filter *key.Filter, each func(row) error) (mark, error) {
	c, err := s.readers.take(ctx)
	if err != nil {
		return mark{}, err
	}
	defer s.readers.give(c)
	at, err := c.snapshot(filter, each)
	if err != nil {
		return mark{}, failed(ctx, "read the rows", err)
	}
	return at, nil
}

func (c *conn) snapshot(filter *key.Filter, each func(row) error) (at mark, err error) {
	if err := c.exec(begin); err != nil {
		return mark{}, err
	}
	if at, err = c.newest(); err == nil {
		err = c.scan(filter, each)
	}
	if err == nil {
		err = c.exec(commit)
	}
	if err != nil {
		_ = c.abandon() // the first error tells more
		return mark{}, err
	}
	return at, nil
}

// afterAll stands behind every key: no UTF-8 has it.
var afterAll = []byte{0xff}

func (c *conn) scan(filter *key.Filter, each func(row) error) error {
	stmt, err := c.stmt(scan)
	if err != nil {
		return err
	}
	prefix, exact := filter.Prefix()
	end := key.PrefixEnd(prefix)
	if end == nil {
		end = afterAll
	}
	if err := stmt.BindBlob(1, prefix); err != nil {
		return err
	}
	if err := stmt.BindBlob(2, end); err != nil {
		return err
	}
	var at []byte // a raw blob is valid until the next one is asked for
	for stmt.Step() {
		at = stmt.ColumnBlob(0, at[:0])
		if !exact {
			k, err := key.Parse(at)
			if err != nil {
				_ = stmt.Reset()
				return err
			}
			if !filter.Match(&k) {
				continue
			}
		}
		if err := each(row{mark{stmt.ColumnInt64(1), stmt.ColumnInt64(2)}, at, stmt.ColumnRawBlob(3)}); err != nil {
			_ = stmt.Reset()
			return err
		}
	}
	return finish(stmt)
}

// arena copies many small slices into few large ones.
type arena struct{ room []byte }

func (a *arena) copy(b []byte) []byte {
	if len(b) > cap(a.room)-len(a.room) {
		a.room = make([]byte, 0, max(len(b), min(max(2*cap(a.room), 4<<10), 1<<20)))
	}
	start := len(a.room)
	a.room = append(a.room, b...)
	return a.room[start:len(a.room):len(a.room)]
}

func (a *arena) row(r row) row { return row{r.at, a.copy(r.key), a.copy(r.data)} }
