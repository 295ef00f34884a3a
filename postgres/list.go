package postgres

import (
	"bytes"
	"context"
	"encoding/base64"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
)

// List implements driver.Lister.
func (b *handle) List(ctx context.Context, consistency storage.ReadConsistency, f *driver.Filter, rows driver.Rows) error {
	if consistency == storage.EventualConsistency && b.listReplica(ctx, f, rows) {
		return nil
	}
	err := b.repeat(ctx, func(ctx context.Context) error {
		conn, err := primary(ctx, b.pool)
		if err != nil {
			return err
		}
		defer conn.Release()
		found, err := conn.Query(ctx, b.sql.list, listArguments(f)...)
		if err != nil {
			return err
		}
		return addAll(rows, found)
	})
	b.answered()
	return err
}

// addAll adds the rows of an attempt.
func addAll(rows driver.Rows, found pgx.Rows) error {
	rows.Restart()
	var at, version, data pgtype.DriverBytes // valid until the next row
	var text []byte
	_, err := pgx.ForEachRow(found, []any{&at, &version, &data}, func() error {
		text = base64.RawURLEncoding.AppendEncode(text[:0], version)
		if err := rows.Add(at, text, data); err != nil {
			return failed{err}
		}
		return nil
	})
	return err
}

// listArguments are the range of keys, and a pattern for what is left to filter in it. A pattern is exact, although a % may
// run over NULs: it holds four of them, and so does every key.
func listArguments(f *driver.Filter) []any {
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

// Scan implements driver.Driver.
func (b *handle) Scan(ctx context.Context, _ storage.ReadConsistency, f *driver.Filter, rows driver.Rows) (at position, err error) {
	err = b.repeat(ctx, func(ctx context.Context) error {
		conn, err := primary(ctx, b.pool)
		if err != nil {
			return err
		}
		defer conn.Release()
		at, err = b.scanOnce(ctx, conn, f, rows)
		return err
	})
	b.answered()
	if err == nil {
		b.inbox.Load().listed(&at)
	}
	return at, err
}

func (b *handle) scanOnce(ctx context.Context, conn *pgxpool.Conn, f *driver.Filter, rows driver.Rows) (position, error) {
	_, final, err := scanFinal(conn.QueryRow(ctx, b.sql.final))
	if err != nil {
		return position{}, err
	}
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return position{}, err
	}
	defer rollback(tx) // it only reads
	at, err := b.lastChange(ctx, tx, final)
	if err != nil {
		return position{}, err
	}
	if err := b.beyond(ctx, tx, &at, final); err != nil {
		return position{}, err
	}
	found, err := tx.Query(ctx, b.sql.list, listArguments(f)...)
	if err != nil {
		return position{}, err
	}
	return at, addAll(rows, found)
}
