package postgres

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/check"
	"github.com/ashlar-dev/storage/internal/key"
	"github.com/ashlar-dev/storage/internal/message"
	"github.com/ashlar-dev/storage/internal/paging"
	"github.com/ashlar-dev/storage/internal/spool"
	"github.com/ashlar-dev/storage/resourcepb"
)

// List implements storage.Backend.
func (b *Backend) List(ctx context.Context, consistency storage.ReadConsistency, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, namePrefix string) ([]*resourcepb.Resource, error) {
	f, err := check.Filter(typ, tenancy, namePrefix)
	ctx, done, err := b.begin(ctx, check.Consistency(consistency), err)
	if err != nil {
		return nil, err
	}
	defer done()
	if consistency == storage.EventualConsistency {
		if resources, fresh := b.listReplica(ctx, &f); fresh {
			return resources, nil
		}
	}
	var resources []*resourcepb.Resource
	err = b.repeat(ctx, func(ctx context.Context) error {
		conn, err := primary(ctx, b.pool)
		if err != nil {
			return err
		}
		defer conn.Release()
		rows, err := conn.Query(ctx, b.sql.list, listArguments(&f)...)
		if err != nil {
			return err
		}
		resources, err = decodeAll(rows)
		return err
	})
	b.answered()
	if err != nil {
		return nil, fmt.Errorf("list: %w", err)
	}
	return resources, nil
}

func decodeAll(rows pgx.Rows) ([]*resourcepb.Resource, error) {
	var resources []*resourcepb.Resource
	var at, version, data pgtype.DriverBytes // valid until the next row, and decoding copies
	_, err := pgx.ForEachRow(rows, []any{&at, &version, &data}, func() error {
		res, err := message.DecodeAt(at, data, versionText(version))
		if err != nil {
			return failed{err}
		}
		resources = append(resources, res)
		return nil
	})
	return resources, err
}

// listArguments are the range of keys, and a pattern for what is left to filter in it. A pattern is exact, although a % may
// run over NULs: it holds four of them, and so does every key.
func listArguments(f *key.Filter) []any {
	prefix, exact := f.Prefix()
	if prefix == nil {
		prefix = []byte{}
	}
	var pattern []byte
	if !exact {
		for _, part := range []string{f.Group, f.Kind, f.Partition, f.Namespace} {
			if part == storage.Wildcard {
				pattern = append(pattern, '%')
			} else {
				pattern = appendLiteral(pattern, part)
			}
			pattern = append(pattern, 0)
		}
		pattern = append(appendLiteral(pattern, f.NamePrefix), '%')
	}
	return []any{prefix, key.PrefixEnd(prefix), pattern}
}

func appendLiteral(pattern []byte, text string) []byte {
	for i := range len(text) {
		if bytes.IndexByte([]byte(`%_\`), text[i]) >= 0 {
			pattern = append(pattern, '\\')
		}
		pattern = append(pattern, text[i])
	}
	return pattern
}

// ListPage implements storage.Pager. The first page copies the rest of the listing out of the database, so that no
// transaction stays open between pages; a continue token works with the handle that made it.
func (b *Backend) ListPage(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, namePrefix string, opts storage.ListOptions) (storage.Page, error) {
	f, badFilter := check.Filter(typ, tenancy, namePrefix)
	limit, badOptions := check.Page(opts, paging.PageLimit)
	ctx, done, err := b.begin(ctx, badFilter, badOptions, b.shelf.Check(f, opts.Continue))
	if err != nil {
		return storage.Page{}, err
	}
	defer done()
	var page paging.Page
	if opts.Continue != "" {
		page, err = b.shelf.Next(f, opts.Continue, limit)
	} else {
		page, err = b.firstPage(ctx, f, limit)
	}
	if err != nil {
		return storage.Page{}, fmt.Errorf("list a page: %w", err)
	}
	out := storage.Page{Resources: make([]*resourcepb.Resource, len(page.Records)), Continue: page.Continue, Cursor: page.Cursor}
	for i, record := range page.Records {
		if out.Resources[i], err = fromRecord(record); err != nil {
			return storage.Page{}, fmt.Errorf("list a page: %w", err)
		}
	}
	return out, nil
}

func (b *Backend) firstPage(ctx context.Context, f key.Filter, limit int) (paging.Page, error) {
	at, rows, err := b.copyOut(ctx, &f)
	if err != nil {
		return paging.Page{}, err
	}
	return b.shelf.First(f, at.cursor(b.storeID()), rows, limit)
}

// copyOut reads everything that matches in one snapshot, which is the position it returns, into a spool of records.
func (b *Backend) copyOut(ctx context.Context, f *key.Filter) (at position, rows *spool.Spool, err error) {
	err = b.repeat(ctx, func(ctx context.Context) error {
		at, rows, err = b.copyOnce(ctx, f)
		return err
	})
	b.answered()
	return at, rows, err
}

func (b *Backend) copyOnce(ctx context.Context, f *key.Filter) (position, *spool.Spool, error) {
	conn, err := primary(ctx, b.pool)
	if err != nil {
		return position{}, nil, err
	}
	defer conn.Release()
	return b.copySnapshot(ctx, conn, f)
}

func (b *Backend) copySnapshot(ctx context.Context, conn *pgxpool.Conn, f *key.Filter) (position, *spool.Spool, error) {
	_, final, err := scanFinal(conn.QueryRow(ctx, b.sql.final))
	if err != nil {
		return position{}, nil, err
	}
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return position{}, nil, err
	}
	defer rollback(tx) // it only reads
	at, err := b.lastChange(ctx, tx, final)
	if err != nil {
		return position{}, nil, err
	}
	if err := b.beyond(ctx, tx, &at, final); err != nil {
		return position{}, nil, err
	}
	rows, err := tx.Query(ctx, b.sql.list, listArguments(f)...)
	if err != nil {
		return position{}, nil, err
	}
	out := spool.New(paging.SpoolMemory)
	var key, version, data pgtype.DriverBytes
	var record []byte
	_, err = pgx.ForEachRow(rows, []any{&key, &version, &data}, func() error {
		record = appendText(appendText(record[:0], key), version)
		record = append(record, data...)
		if err := out.Append(record); err != nil {
			return failed{err}
		}
		return nil
	})
	if err == nil {
		if err = out.Seal(); err != nil {
			err = failed{err}
		}
	}
	if err != nil {
		_ = out.Close() // the first error says more
		return position{}, nil, err
	}
	return at, out, nil
}

// fromRecord decodes what copySnapshot wrote: the key and the version with their lengths, then the resource.
func fromRecord(record []byte) (*resourcepb.Resource, error) {
	at, record := cutText(record)
	version, data := cutText(record)
	return message.DecodeAt(at, data, versionText(version))
}

func appendText(record, text []byte) []byte {
	return append(binary.AppendUvarint(record, uint64(len(text))), text...)
}

func cutText(record []byte) (text, rest []byte) {
	size, n := binary.Uvarint(record)
	end := n + int(size)
	return record[n:end], record[end:]
}
