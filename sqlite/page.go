package sqlite

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/check"
	"github.com/ashlar-dev/storage/internal/key"
	"github.com/ashlar-dev/storage/internal/paging"
	"github.com/ashlar-dev/storage/internal/spool"
	"github.com/ashlar-dev/storage/resourcepb"
)

// ListPage implements storage.Pager. All pages show the snapshot of the first one, whose call copies the rest of the listing
// out of the database, to memory or to a temporary file.
func (s *Backend) ListPage(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, namePrefix string, opts storage.ListOptions) (storage.Page, error) {
	filter, badFilter := check.Filter(typ, tenancy, namePrefix)
	limit, badOptions := check.Page(opts, paging.PageLimit)
	if err := s.enter(ctx, badFilter, badOptions, s.shelf.Check(filter, opts.Continue)); err != nil {
		return storage.Page{}, err
	}
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	var page storage.Page
	var rows []row
	var err error
	if opts.Continue == "" {
		page, rows, err = s.firstPage(ctx, filter, limit)
	} else {
		page, rows, err = s.laterPage(filter, opts.Continue, limit)
	}
	if err == nil {
		page.Resources, err = decodeAll(rows)
	}
	if err != nil {
		return storage.Page{}, fmt.Errorf("list a page: %w", err)
	}
	return page, nil
}

func (s *Backend) firstPage(ctx context.Context, filter key.Filter, limit int) (page storage.Page, rows []row, err error) {
	var arena arena
	rest := spool.New(paging.SpoolMemory)
	bytes := 0
	at, err := s.snapshot(ctx, &filter, func(r row) error {
		if len(rows) < limit && bytes < paging.PageBytes {
			rows = append(rows, arena.row(r))
			bytes += len(r.data)
			return nil
		}
		return r.appendTo(rest)
	})
	if err == nil {
		err = rest.Seal()
	}
	if err != nil {
		return page, nil, errors.Join(err, rest.Close())
	}
	page.Cursor = at.cursor(s.id)
	if rest.Count() == 0 {
		return page, rows, rest.Close()
	}
	page.Continue, err = s.shelf.Hold(filter, page.Cursor, rest)
	return page, rows, err
}

func (s *Backend) laterPage(filter key.Filter, token string, limit int) (storage.Page, []row, error) {
	held, err := s.shelf.Next(filter, token, limit)
	if err != nil {
		return storage.Page{}, nil, err
	}
	rows := make([]row, len(held.Records))
	for i, record := range held.Records {
		rows[i] = rowOf(record)
	}
	return storage.Page{Continue: held.Continue, Cursor: held.Cursor}, rows, nil
}

// A record of a spool is number, tag, length of the key, key and data.

func (r row) appendTo(rest *spool.Spool) error {
	record := make([]byte, 16, 16+binary.MaxVarintLen16+len(r.key)+len(r.data))
	binary.BigEndian.PutUint64(record, uint64(r.at.seq))
	binary.BigEndian.PutUint64(record[8:], uint64(r.at.tag))
	record = binary.AppendUvarint(record, uint64(len(r.key)))
	return rest.Append(append(append(record, r.key...), r.data...))
}

func rowOf(record []byte) row {
	size, n := binary.Uvarint(record[16:])
	begin := 16 + n
	end := begin + int(size)
	return row{
		at:   mark{int64(binary.BigEndian.Uint64(record)), int64(binary.BigEndian.Uint64(record[8:]))},
		key:  record[begin:end],
		data: record[end:],
	}
}

// spooled is the snapshot that a watch begins with.
type spooled struct {
	rows   *spool.Spool
	reader *spool.Reader
}

// Next implements feed.Snapshot.
func (s *spooled) Next(context.Context) (*resourcepb.Resource, error) {
	record, err := s.reader.Next()
	if errors.Is(err, io.EOF) {
		return nil, io.EOF
	}
	if err != nil {
		return nil, err
	}
	return rowOf(record).decode()
}

// Close implements feed.Snapshot.
func (s *spooled) Close() { _ = s.rows.Close() }
