//go:build integration

package bench

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/env"
	_ "github.com/ashlar-dev/storage/postgres"
)

// BenchmarkPostgres compares with bare single-row statements through pgxpool on the same server, at the container's own address.
func BenchmarkPostgres(b *testing.B) { once(b, func() { postgres(b) }) }

func postgres(b *testing.B) {
	ctx := context.Background()
	server := env.Postgres(b).Direct(b)
	schema := server.Schema(b)
	pool := must(pgxpool.New(ctx, server.URL+"&pool_max_conns=32"))
	b.Cleanup(pool.Close)
	must(pool.Exec(ctx, "create schema "+schema))
	must(pool.Exec(ctx, fmt.Sprintf(`create table %s.raw (id text primary key, version bigint not null, data bytea not null) with (fillfactor = 80)`, schema)))
	url := server.StoreURL(b)
	backend := open(b, url)
	follow(b, backend)
	fenced(b, "postgres", backend, []int{1, 8, 32})

	callers := []int{1, 16, 64, 256}
	update := fmt.Sprintf(`update %s.raw set data = $2, version = version + 1 where id = $1`, schema)
	read := fmt.Sprintf(`select version, data from %s.raw where id = $1`, schema)
	for _, size := range []int{500, 2048} {
		h := fill(b, backend, fmt.Sprintf("size-%d", size), maxCallers(), size)
		data := payload(size)
		raw := func(caller, i int) string { return fmt.Sprintf("raw-%d-%d-%d", size, caller, i%keysPerCaller) }
		for c := range maxCallers() {
			for k := range keysPerCaller {
				must(pool.Exec(ctx, fmt.Sprintf(`insert into %s.raw values ($1, 1, $2)`, schema), raw(c, k), data))
			}
		}
		compare(b, "postgres", fmt.Sprintf("write-%d", size), callers, side{"pgx", func(caller, i int) error {
			tag, err := pool.Exec(ctx, update, raw(caller, i), data)
			if err == nil && tag.RowsAffected() != 1 {
				return fmt.Errorf("updated %d rows", tag.RowsAffected())
			}
			return err
		}}, side{"ashlar", h.write})
		if size != 500 {
			continue
		}
		for _, n := range []struct{ handles, callers int }{{4, 64}, {16, 16}, {64, 64}} {
			what := fmt.Sprintf("write-%d-of-%d-handles", size, n.handles)
			if n.callers > maxCallers() || !selected(fmt.Sprintf("postgres/%s/%d", what, n.callers)) {
				continue
			}
			fleet, end := h.through(b, url+"&pool_max_conns=2", n.handles)
			compare(b, "postgres", what, []int{n.callers}, side{"pgx", func(caller, i int) error {
				_, err := pool.Exec(ctx, update, raw(caller, i), data)
				return err
			}}, side{"ashlar", fleet.write})
			fleet.report("postgres/" + what)
			end()
		}
		compare(b, "postgres", "read", callers, side{"pgx", func(caller, i int) error {
			var version int64
			var data []byte
			return pool.QueryRow(ctx, read, raw(caller, i)).Scan(&version, &data)
		}}, side{"ashlar", h.read})
	}

	watchers := map[string]storage.Backend{"same": backend, "other": open(b, url)}
	for _, where := range []string{"same", "other"} {
		if !selected("postgres/event-" + where + "-process") {
			continue
		}
		events, writes := eventLatency(b, backend, watchers[where], "event-"+where, scaled(500))
		event, write := percentile(events, 50), percentile(writes, 50)
		fmt.Printf("latency postgres/event-%s-process/1 %.2f (p50 %v after a write of %v)\n", where, float64(event)/float64(write), event, write)
	}

	if !selected("postgres/idle") {
		return
	}
	one := transactions(b, pool, observation(10*time.Second))
	followNames(b, backend, scaled(999), "somebody else's")
	many := transactions(b, pool, observation(10*time.Second))
	fmt.Printf("transactions a second of an idle store: %.1f with 1 watch, %.1f with 1,000\n", one, many)
}

// transactions counts the server's transactions without writers.
func transactions(b *testing.B, pool *pgxpool.Pool, observed time.Duration) float64 {
	b.Helper()
	count := func() (n int64) {
		if err := pool.QueryRow(context.Background(), `select sum(xact_commit + xact_rollback) from pg_stat_database`).Scan(&n); err != nil {
			b.Fatal(err)
		}
		return n
	}
	time.Sleep(observation(12 * time.Second)) // idle connections report their statistics after ten seconds
	before := count()
	time.Sleep(observed)
	return float64(count()-before) / observed.Seconds()
}
