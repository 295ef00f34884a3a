package postgres

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"math"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
)

// lister lists resources.
type lister struct {
	*database
	frontier *frontier
	readAt   func(context.Context, *driver.HistoryQuery[position], func(*driver.Version) error) (driver.HistoryPage[position], error)
}

// maxGaps is the number of attempts of a strong list that find a missing number below the tip. Then the list is read at a position.
const maxGaps = 4

// List implements driver.Driver. A strong list is the store at the tip, the highest number that the statement sees. If a lower number is
// missing, its transaction may be pending: List waits until the tip is final, and starts again.
func (l *lister) List(ctx context.Context, consistency storage.ReadConsistency, f *driver.Filter, rows driver.Rows) error {
	if consistency == storage.EventualConsistency && l.replica != nil {
		sql, arguments := l.replica.sql.listing(f)
		if l.replica.query(ctx, sql, arguments, func(found pgx.Rows) error { return addAll(rows, found) }) {
			return nil
		}
	}
	sql, arguments := l.sql.listing(f)
	if consistency == storage.EventualConsistency {
		return l.onPrimary(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
			found, _ := conn.Query(ctx, sql, arguments...) // an error shows in the rows
			return addAll(rows, found)
		})
	}
	sql = l.sql.strongListing(sql, arguments)
	for range maxGaps {
		var gap int64
		err := l.onPrimary(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
			base, index, token := l.frontier.baseArguments()
			found, _ := conn.Query(ctx, sql, append(slices.Clip(arguments), base, index, token)...) // an error shows in the rows
			gap = 0
			if found.Next() {
				var tip, fence []byte
				if err := found.Scan(nil, &tip, &fence); err != nil {
					return err
				}
				if err := readError(ctx, fence); err != nil {
					found.Close()
					return permanent{err}
				}
				_, gap = l.frontier.noteTip(tip)
			}
			return addAll(rows, found)
		})
		if err != nil || gap == 0 {
			return err
		}
		if err := l.frontier.await(ctx, gap); err != nil {
			return err
		}
	}
	return l.listFinal(ctx, f, rows)
}

// listFinal lists at a position that is final, from the log if necessary.
func (l *lister) listFinal(ctx context.Context, f *driver.Filter, rows driver.Rows) error {
	rows.Restart()
	prefix, _ := f.Prefix()
	q := &driver.HistoryQuery[position]{
		Consistency: storage.StrongConsistency, Final: true, RefuseMoved: true, Filter: f, From: prefix, To: key.PrefixEnd(prefix),
		Bytes: math.MaxInt, // a list is complete
	}
	_, err := l.readAt(ctx, q, func(v *driver.Version) error { return rows.Add(v.Key, v.Version, v.Data) })
	return err
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

// strongListing returns the statement that also reads the tip, for a statement of listing and its arguments.
func (s *statements) strongListing(sql string, arguments []any) string {
	if sql == s.list {
		return s.strongList
	}
	return s.strongListSteps[len(arguments)-5]
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
