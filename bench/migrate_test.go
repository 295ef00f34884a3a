//go:build integration

package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/ncruces/go-sqlite3"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/testenv"
	"github.com/ashlar-dev/storage/migrate"
)

// BenchmarkMigrate moves 200,000 resources of 1 KB from SQLite to Postgres, comparison at the end included, and compares with
// a hand-written COPY of the same rows from the same file into a bare table.
func BenchmarkMigrate(b *testing.B) { once(b, func() { migration(b) }) }

func migration(b *testing.B) {
	const resources, size, together = 200_000, 1000, 200
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

	server := testenv.Postgres(b)
	var raw, ours []time.Duration
	for range 3 {
		raw = append(raw, copyByHand(b, server, file, resources))
		to := open(b, server.StoreURL(b))
		forgetPeak(b)
		began := time.Now()
		result, err := migrate.Run(ctx, from, to, &migrate.Options{From: "sqlite", To: "postgres"})
		if err != nil {
			b.Fatal(err)
		}
		ours = append(ours, time.Since(began))
		fmt.Printf("migrate: %v, %v; peak memory of the process %s; a COPY by hand took %v\n", result.Done, ours[len(ours)-1].Round(time.Millisecond),
			peak(b), raw[len(raw)-1].Round(time.Millisecond))
	}
	fmt.Printf("latency migrate/sqlite-postgres/200000 %.2f\n", float64(percentile(ours, 50))/float64(percentile(raw, 50)))
}

// copyByHand is what somebody would write for one table and one day.
func copyByHand(b *testing.B, server *testenv.PostgresServer, file string, want int64) time.Duration {
	b.Helper()
	ctx := context.Background()
	schema := server.Schema(b)
	conn := server.Connect(b)
	must(conn.Exec(ctx, "create schema "+schema))
	must(conn.Exec(ctx, fmt.Sprintf(`create table %s.raw (key bytea primary key, uid text not null, data bytea not null)`, schema)))
	began := time.Now()
	db := must(sqlite3.Open(file))
	defer db.Close()
	rows, _, err := db.Prepare(`SELECT key, uid, data FROM resources ORDER BY key`)
	must(rows, err)
	defer rows.Close()
	n := must(conn.CopyFrom(ctx, pgx.Identifier{schema, "raw"}, []string{"key", "uid", "data"}, pgx.CopyFromFunc(func() ([]any, error) {
		if !rows.Step() {
			return nil, rows.Err()
		}
		return []any{rows.ColumnBlob(0, nil), rows.ColumnText(1), rows.ColumnBlob(2, nil)}, nil
	})))
	if n != want {
		b.Fatalf("copied %d rows, expected %d", n, want)
	}
	return time.Since(began)
}

// forgetPeak lets the kernel begin anew with the process's peak of memory.
func forgetPeak(b *testing.B) {
	b.Helper()
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		b.Log(err)
	}
}

// peak is the most memory that the process had since.
func peak(b *testing.B) string {
	b.Helper()
	for line := range strings.Lines(string(must(os.ReadFile("/proc/self/status")))) {
		if text, is := strings.CutPrefix(line, "VmHWM:"); is {
			return strings.TrimSpace(text)
		}
	}
	return "unknown"
}
