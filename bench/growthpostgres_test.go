//go:build integration

package bench

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ashlar-dev/storage/internal/test/env"
)

// BenchmarkGrowthPostgres grows a store beside a table with an index of owners, read and written by bare statements through
// pgxpool, in the same database.
func BenchmarkGrowthPostgres(b *testing.B) { once(b, func() { growPostgres(b) }) }

func init() {
	openers["postgres"] = func(where string) (growing, error) { return openGrowingPostgres(where) }
}

func growPostgres(b *testing.B) {
	server := env.Postgres(b).Direct(b)
	schema := server.Schema(b)
	conn := server.Connect(b)
	must(conn.Exec(context.Background(), "create schema "+schema))
	where := [2]string{server.URL + "&search_path=" + schema, server.StoreURL(b)}
	raw := must(openGrowingPostgres(where[0]))
	b.Cleanup(func() { raw.close() })
	ours := must(openGrowing(where[1], raw.settle)) // settle affects the whole database
	b.Cleanup(func() { ours.close() })
	(&growths{
		name: "postgres", shown: "Postgres", raw: "pgx", most: 1_000_000,
		notes:  []string{"Memory is the peak of a process that reads, watches and lists everything in pages; without the server's."},
		sides:  [2]growing{raw, ours},
		memory: peakMemory("postgres", where),
	}).run(b)
}

// growingPostgres uses the statements that a program with one table would use.
type growingPostgres struct {
	pool *pgxpool.Pool
	data []byte
}

func openGrowingPostgres(url string) (*growingPostgres, error) {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return nil, err
	}
	_, err = pool.Exec(ctx, `create table if not exists raw (id text collate "C" primary key, owner text collate "C",
		version bigint not null, data bytea not null) with (fillfactor = 80);
		create index if not exists owners on raw (owner) where owner is not null`)
	return &growingPostgres{pool: pool, data: payload(600)}, err
}

func (s *growingPostgres) add(from, to int, done func(n int)) error {
	return inBatches(from, to, 1000, 4, done, func(from, to int) error {
		_, err := s.pool.CopyFrom(context.Background(), pgx.Identifier{"raw"}, []string{"id", "owner", "version", "data"},
			pgx.CopyFromSlice(to-from, func(i int) ([]any, error) {
				var owner any
				if of, owned := ownerOf(from + i); owned {
					owner = nameOf(of)
				}
				return []any{nameOf(from + i), owner, 1, s.data}, nil
			}))
		return err
	})
}

func (s *growingPostgres) settle() error {
	ctx := context.Background()
	if _, err := s.pool.Exec(ctx, `vacuum analyze`); err != nil {
		return err
	}
	_, err := s.pool.Exec(ctx, `checkpoint`)
	return err
}

func (s *growingPostgres) read(i int) error {
	var version int64
	var data []byte
	return s.pool.QueryRow(context.Background(), `select version, data from raw where id = $1`, nameOf(i)).Scan(&version, &data)
}

func (s *growingPostgres) write(i int) error {
	tag, err := s.pool.Exec(context.Background(), `update raw set data = $2, version = version + 1 where id = $1`, nameOf(i), s.data)
	if err == nil && tag.RowsAffected() != 1 {
		err = fmt.Errorf("updated %d rows", tag.RowsAffected())
	}
	return err
}

// querier is a pool, a connection or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

func rowsOf(q querier, sql string, args ...any) (n int, err error) {
	rows, err := q.Query(context.Background(), sql, args...)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	var id string
	var data []byte
	for ; rows.Next(); n++ {
		if err := rows.Scan(&id, &data); err != nil {
			return n, err
		}
	}
	return n, rows.Err()
}

// The colon follows the digits of all names.
const underPrefix = `select id, data from raw where id >= $1 and id < $2 order by id`

func (s *growingPostgres) list(prefix string) (int, error) {
	return rowsOf(s.pool, underPrefix, prefix, prefix+":")
}

// watch first listens, and then reads the items.
func (s *growingPostgres) watch(prefix string) (n int, err error) {
	ctx := context.Background()
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Release()
	if _, err := conn.Exec(ctx, `listen raw`); err != nil {
		return 0, err
	}
	n, err = rowsOf(conn, underPrefix, prefix, prefix+":")
	_, err2 := conn.Exec(ctx, `unlisten raw`)
	return n, errors.Join(err, err2)
}

func (s *growingPostgres) owned(i int) (int, error) {
	return rowsOf(s.pool, `select id, null::bytea from raw where owner = $1 order by id`, nameOf(i))
}

func (s *growingPostgres) first(limit int) (int, error) { return s.pageAfter("", limit) }

func (s *growingPostgres) pageAfter(after string, limit int) (int, error) {
	return rowsOf(s.pool, `select id, data from raw where id > $1 order by id limit $2`, after, limit)
}

func (s *growingPostgres) walk(limit int) (n int, err error) { return walkNames(limit, s.pageAfter) }

func (s *growingPostgres) close() error { s.pool.Close(); return nil }
