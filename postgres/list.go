package postgres

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// lister lists resources.
type lister struct{ *database }

// List implements driver.Driver.
func (l *lister) List(ctx context.Context, consistency storage.ReadConsistency, f *driver.Filter, rows driver.Rows) error {
	sql, arguments := l.sql.listing(f)
	if consistency == storage.EventualConsistency &&
		l.replica.query(ctx, sql, arguments, func(found pgx.Rows) error { return addAll(rows, found) }) {
		return nil
	}
	return l.onPrimary(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		found, _ := conn.Query(ctx, sql, arguments...) // an error shows in the rows
		return addAll(rows, found)
	})
}

// errDisorder reports that a statement returned the steps of a list in another order than it took them. No server is known to do
// so.
var errDisorder = errors.New("the server returned the rows of a list out of order")

// addAll adds the rows of an attempt.
func addAll(rows driver.Rows, found pgx.Rows) error {
	rows.Restart()
	var at, version, data pgtype.DriverBytes // valid until the next row
	var text, before []byte
	_, err := pgx.ForEachRow(found, []any{&at, &version, &data}, func() error {
		if bytes.Compare(at, before) <= 0 && before != nil {
			return permanent{errDisorder}
		}
		before = append(before[:0], at...)
		text = base64.RawURLEncoding.AppendEncode(text[:0], version)
		if err := rows.Add(at, text, data); err != nil {
			return permanent{err}
		}
		return nil
	})
	return err
}

// listArguments returns the range of keys of a filter, and a pattern for further filtering in it. The pattern is exact, although a
// % may match NULs: the pattern has four NULs, as has every key.
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
				pattern = append(pattern, literal.Replace(part)...)
			}
			pattern = append(pattern, 0)
		}
		pattern = append(append(pattern, literal.Replace(f.NamePrefix)...), '%')
	}
	return []any{prefix, key.PrefixEnd(prefix), pattern}
}

// literal escapes text for a pattern.
var literal = strings.NewReplacer(`%`, `\%`, `_`, `\_`, `\`, `\\`)

// Children implements driver.Driver. It always reads the primary.
func (l *lister) Children(ctx context.Context, owner driver.Key, uid string) ([]*resourcepb.ID, error) {
	var ids []*resourcepb.ID
	var keyBytes, ownedUid, groupVersion []byte
	into := []any{&keyBytes, &ownedUid, &groupVersion}
	err := l.queryPrimary(ctx, func() { ids = nil }, l.sql.children, []any{ownerHash(owner, uid)}, into, func() error {
		owned, err := key.Parse(keyBytes)
		if err != nil {
			return permanent{err}
		}
		ids = append(ids, owned.ID(string(ownedUid), string(groupVersion)))
		return nil
	})
	if err != nil {
		return nil, err
	}
	return ids, nil
}

// ReadAfter implements driver.Bulk.
func (l *lister) ReadAfter(ctx context.Context, after []byte, limit int) ([]driver.Row, error) {
	if after == nil {
		after = []byte{} // before all keys
	}
	var found []driver.Row
	var name, version, data []byte
	begin := func() { found = make([]driver.Row, 0, limit) }
	arguments, into := []any{after, limit, driver.ReadBytes}, []any{&name, &version, &data}
	err := l.queryPrimary(ctx, begin, l.sql.readAfter, arguments, into, func() error {
		k, err := key.Parse(name)
		if err != nil {
			return permanent{err}
		}
		found = append(found, driver.Row{Key: k, Version: versionText(version), Data: data})
		return nil
	})
	return found, err
}

// listing returns the statement that lists the matches of a filter, and its arguments.
func (s *statements) listing(f *driver.Filter) (sql string, arguments []any) {
	arguments = listArguments(f)
	if arguments[2].([]byte) == nil {
		return s.list, arguments
	}
	if arguments[1].([]byte) == nil {
		arguments[1] = afterAll
	}
	fixed := fixedParts(f)
	for _, part := range fixed {
		arguments = append(arguments, part)
	}
	return s.listSteps[len(fixed)-1], append(arguments, key.PrefixEnd(fixed[len(fixed)-1]))
}

// fixedParts returns the fixed texts that follow the wildcards of a filter in a key, each up to the next wildcard. The last one is
// not empty: wildcards at the end of a key skip nothing.
func fixedParts(f *driver.Filter) (parts [][]byte) {
	for _, unit := range []string{f.Group, f.Kind, f.Partition, f.Namespace} {
		switch n := len(parts); {
		case unit == storage.Wildcard:
			parts = append(parts, []byte{})
		case n > 0:
			parts[n-1] = append(append(parts[n-1], unit...), 0)
		}
	}
	if n := len(parts); f.NamePrefix != "" {
		parts[n-1] = append(parts[n-1], f.NamePrefix...)
	}
	for n := len(parts); len(parts[n-1]) == 0; n-- {
		parts = parts[:n-1]
	}
	return parts
}

// afterAll is greater than all keys, which are UTF-8.
var afterAll = []byte{0xff}
