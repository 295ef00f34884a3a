//go:build integration

package bench

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/ncruces/go-sqlite3"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/migrate"
)

// BenchmarkMigrate moves 200,000 resources of 1 KB from SQLite to Postgres, and compares with COPYs by hand out of the same file
// into the same server, with the same durability:
//
//   - of the same rows: into the two tables of a store, the resources and the log that watches read, in one transaction;
//   - into a bare table with a primary key, without watches, as for copying one table once.
//
// Neither COPY compares the copied rows, so there is a ratio for the copy alone as well as one for the total.
func BenchmarkMigrate(b *testing.B) { once(b, func() { migration(b) }) }

func migration(b *testing.B) {
	const size, together = 1000, 200
	resources := scaled(200_000)
	ctx := context.Background()
	dir := must(filepath.Abs(must(os.MkdirTemp(os.Getenv("ASHLAR_BENCH_DIR"), "bench-migrate-"))))
	b.Cleanup(func() { os.RemoveAll(dir) })
	file := dir + "/store.db"
	from := open(b, "sqlite://"+file)
	tx, _ := storage.As[storage.Transactor](from)
	for i := 0; i < resources; i += together {
		ops := make([]storage.Op, together)
		for j := range ops {
			ops[j].Write = resource(fmt.Sprintf("thing-%07d", i+j), size)
		}
		must(tx.Commit(ctx, ops))
	}

	server := env.Postgres(b)
	var same, bare, copied, all []float64
	for range repetitions() {
		rows := copyRows(b, server, file, int64(resources))
		table := copyTable(b, server, file, int64(resources))
		to := open(b, server.StoreURL(b))
		debug.FreeOSMemory()
		forgetPeak(b)
		before := memory("VmRSS:")
		result, err := migrate.Run(ctx, from, to, &migrate.Options{From: "sqlite", To: "postgres"})
		if err != nil {
			b.Fatal(err)
		}
		fmt.Printf("migrate: copied in %v, compared in %v; peak memory of the process %s (before: %s); a COPY by hand of the same rows %v, into a bare table %v\n",
			result.CopyTime.Round(time.Millisecond), (result.Duration - result.CopyTime).Round(time.Millisecond), memory("VmHWM:"), before,
			rows.Round(time.Millisecond), table.Round(time.Millisecond))
		same = append(same, rows.Seconds())
		bare = append(bare, table.Seconds())
		copied = append(copied, result.CopyTime.Seconds())
		all = append(all, result.Duration.Seconds())
	}
	ratio := func(what string, ours, byHand []float64) {
		fmt.Printf("latency migrate/sqlite-postgres-%s/%d %.2f\n", what, resources, median(ours)/median(byHand))
	}
	ratio("copy", copied, same)
	ratio("copy-bare-table", copied, bare)
	ratio("copy-and-compare", all, same)
	ratio("copy-and-compare-bare-table", all, bare)
}

// copyTable copies into a table made for the purpose.
func copyTable(b *testing.B, server *env.PostgresServer, file string, want int64) time.Duration {
	b.Helper()
	ctx := context.Background()
	schema := server.Schema(b)
	conn := server.Connect(b)
	must(conn.Exec(ctx, "create schema "+schema))
	must(conn.Exec(ctx, fmt.Sprintf(`create table %s.raw (key bytea primary key, uid text not null, data bytea not null)`, schema)))
	began := time.Now()
	n := copyByHand(b, conn, file, pgx.Identifier{schema, "raw"}, []string{"key", "uid", "data"}, func(rows *sqlite3.Stmt) []any {
		return []any{rows.ColumnBlob(0, nil), rows.ColumnText(1), rows.ColumnBlob(2, nil)}
	})
	if n != want {
		b.Fatalf("copied %d rows, expected %d", n, want)
	}
	return time.Since(began)
}

// copyRows copies into the tables of a store.
func copyRows(b *testing.B, server *env.PostgresServer, file string, want int64) time.Duration {
	b.Helper()
	ctx := context.Background()
	schema := server.Schema(b)
	conn := server.Connect(b)
	if err := open(b, server.StoreURLIn(b, schema)).Close(); err != nil {
		b.Fatal(err)
	}
	began := time.Now()
	tx := must(conn.Begin(ctx))
	version := make([]byte, 16)
	columns := []string{"key", "uid", "version", "group_version", "data"}
	n := copyByHand(b, conn, file, pgx.Identifier{schema, "resources"}, columns, func(rows *sqlite3.Stmt) []any {
		_, _ = rand.Read(version)
		return []any{rows.ColumnBlob(0, nil), rows.ColumnBlob(1, nil), version, []byte("v1"), rows.ColumnBlob(2, nil)}
	})
	tag := must(conn.Exec(ctx, strings.ReplaceAll(`insert into $.changes (revision, created, writes, place, more, op, key, version, token, data)
		select number, number, 1, 0, false, 1, key, version, version, data
		from (select nextval('$.changes_seq') as number, * from $.resources) as numbered`, "$", schema)))
	if err := tx.Commit(ctx); err != nil {
		b.Fatal(err)
	}
	if n != want || tag.RowsAffected() != want {
		b.Fatalf("copied %d rows and %d, expected %d", n, tag.RowsAffected(), want)
	}
	return time.Since(began)
}

// copyByHand reads the file and copies the values made from its rows.
func copyByHand(b *testing.B, conn *pgx.Conn, file string, table pgx.Identifier, columns []string, values func(*sqlite3.Stmt) []any) int64 {
	b.Helper()
	db := must(sqlite3.Open(file))
	defer db.Close()
	rows, _, err := db.Prepare(`SELECT key, uid, data FROM resources ORDER BY key`)
	must(rows, err)
	defer rows.Close()
	return must(conn.CopyFrom(context.Background(), table, columns, pgx.CopyFromFunc(func() ([]any, error) {
		if !rows.Step() {
			return nil, rows.Err()
		}
		return values(rows), nil
	})))
}

// forgetPeak resets the kernel's record of the process's peak memory.
func forgetPeak(b *testing.B) {
	b.Helper()
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		b.Log(err)
	}
}
