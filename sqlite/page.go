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
	at, err := s.snapshot(ctx, &filter, func(at mark, data []byte) error {
		if len(rows) < limit && bytes < paging.PageBytes {
			rows = append(rows, row{at, arena.copy(data)})
			bytes += len(data)
			return nil
		}
		return appendRow(rest, at, data)
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

// A record of a spool is number, tag and data.

func appendRow(to *spool.Spool, at mark, data []byte) error {
	record := make([]byte, 16, 16+len(data))
	binary.BigEndian.PutUint64(record, uint64(at.seq))
	binary.BigEndian.PutUint64(record[8:], uint64(at.tag))
	return to.Append(append(record, data...))
}

func rowOf(record []byte) row {
	return row{
		at:   mark{int64(binary.BigEndian.Uint64(record)), int64(binary.BigEndian.Uint64(record[8:]))},
		data: record[16:],
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
