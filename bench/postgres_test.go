//go:build integration

package bench

import (
	"context"
	"fmt"
	"net/url"
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
	pool := must(pgxpool.New(ctx, server.URL+"&pool_max_conns=32"))
	b.Cleanup(pool.Close)
	storeURL := server.StoreURL(b)
	backend := open(b, storeURL)
	follow(b, backend)
	fenced(b, "postgres", backend, []int{1, 8, 32})

	cpu := func() time.Duration { return server.CPU(b) }
	callers := []int{1, 4, 16, 64, 256}
	for _, size := range []int{500, 2048} {
		h := fill(b, backend, fmt.Sprintf("size-%d", size), maxCallers(), size)
		raw := fillPostgres(b, pool, server.Schema(b), maxCallers(), size)
		theirs, ours := side{"pgx", raw.write}, side{"ashlar", h.write}
		what := fmt.Sprintf("write-%d", size)
		comparison{backend: "postgres", what: what, callers: callers, server: cpu}.run(b, theirs, ours)
		if size != 500 {
			continue
		}
		comparison{backend: "postgres", what: what + "-after-4-callers", callers: []int{16}, server: cpu, before: 4}.run(b, theirs, ours)
		for _, n := range []struct{ handles, callers int }{{4, 64}, {16, 16}, {64, 64}} {
			(&handles{server, storeURL, h, raw}).compare(b, n.handles, n.callers)
		}
		comparison{backend: "postgres", what: "read", callers: callers, server: cpu}.run(b, side{"pgx", raw.read}, side{"ashlar", h.read})
		comparison{backend: "postgres", what: "create", callers: callers, server: cpu}.run(b, side{"pgx", raw.create}, side{"ashlar", h.create})
		comparison{backend: "postgres", what: "create-and-delete", callers: callers, server: cpu}.run(b, side{"pgx", raw.createAndDelete}, side{"ashlar", h.createAndDelete})
		comparison{backend: "postgres", what: "half-reads", callers: callers, server: cpu}.run(b, side{"pgx", alternating(raw.read, raw.write)},
			side{"ashlar", alternating(h.read, h.write)})
	}

	reported(b, "postgres", storeURL, 64, cpu)

	if selected("postgres/write-far") || selected("postgres/read-far") {
		far := server.At(b, delayed(b, must(url.Parse(server.URL)).Host))
		pool := must(pgxpool.New(ctx, far.URL+"&pool_max_conns=32"))
		b.Cleanup(pool.Close)
		backend := open(b, far.StoreURLIn(b, far.Schema(b)))
		follow(b, backend)
		h, raw := fill(b, backend, "far", maxCallers(), 500), fillPostgres(b, pool, far.Schema(b), maxCallers(), 500)
		compare(b, "postgres", "write-far", callers, side{"pgx", raw.write}, side{"ashlar", h.write})
		compare(b, "postgres", "read-far", callers, side{"pgx", raw.read}, side{"ashlar", h.read})
	}

	watchers := map[string]storage.Backend{"same": backend, "other": open(b, storeURL)}
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

// handles compares writes through several handles of a store with those of pgx: without watches, with a watch of each handle, and with as
// many processes of pgx that read each change.
type handles struct {
	server   *env.PostgresServer
	storeURL string
	stored   *resourceSet
	raw      *rawPostgres
}

func (h *handles) compare(b *testing.B, number, callers int) {
	b.Helper()
	for _, kind := range []string{"unwatched-handles", "handles", "listeners"} {
		what := fmt.Sprintf("write-500-of-%d-%s", number, kind)
		if callers > maxCallers() || !selected(fmt.Sprintf("postgres/%s/%d", what, callers)) {
			continue
		}
		f := h.stored.through(b, h.storeURL+"&pool_max_conns=2", number, kind != "unwatched-handles")
		theirs, settle := side{"pgx", h.raw.write}, map[string]func(){"ashlar": f.settle}
		var l *listeners
		if kind == "listeners" {
			l = h.raw.listened(b, h.server.URL, h.server.Schema(b), number)
			theirs, settle["pgx"] = side{"pgx", l.write}, l.settle
		}
		comparison{
			backend: "postgres", what: what, callers: []int{callers}, settle: settle, server: func() time.Duration { return h.server.CPU(b) },
		}.run(b, theirs, side{"ashlar", f.write})
		if l != nil {
			l.report("postgres/" + what + "/pgx")
			l.close()
		}
		f.report("postgres/" + what + "/ashlar")
		f.close(b)
	}
}

// rawPostgres is a table whose rows callers read and write by pgx, without a log of changes.
type rawPostgres struct {
	pool                               *pgxpool.Pool
	selects, updates, inserts, deletes string // statements
	data                               [payloads][]byte
}

// fillPostgres creates the table in a new schema, with keysPerCaller rows for each caller.
func fillPostgres(b *testing.B, pool *pgxpool.Pool, schema string, callers, size int) *rawPostgres {
	b.Helper()
	ctx := context.Background()
	must(pool.Exec(ctx, fmt.Sprintf(`create schema %s`, schema)))
	must(pool.Exec(ctx, fmt.Sprintf(`create table %s.raw (id text primary key, version bigint not null, data bytea not null) with (fillfactor = 80)`, schema)))
	r := &rawPostgres{
		pool:    pool,
		selects: fmt.Sprintf(`select version, data from %s.raw where id = $1`, schema),
		updates: fmt.Sprintf(`update %s.raw set data = $2, version = version + 1 where id = $1`, schema),
		inserts: fmt.Sprintf(`insert into %s.raw (id, version, data) values ($1, 1, $2)`, schema),
		deletes: fmt.Sprintf(`delete from %s.raw where id = $1`, schema),
	}
	for i := range r.data {
		r.data[i] = payload(size)
	}
	for c := range callers {
		must(pool.Exec(ctx, fmt.Sprintf(`insert into %s.raw select 'raw-%d-' || k, 1, $1 from generate_series(0, %d) k`, schema, c, keysPerCaller-1), r.data[0]))
	}
	return r
}

func rawKey(caller, i int) string { return fmt.Sprintf("raw-%d-%d", caller, i%keysPerCaller) }

func (r *rawPostgres) write(caller, i int) error {
	tag, err := r.pool.Exec(context.Background(), r.updates, rawKey(caller, i), r.data[i%payloads])
	if err == nil && tag.RowsAffected() != 1 {
		return fmt.Errorf("updated %d rows", tag.RowsAffected())
	}
	return err
}

func (r *rawPostgres) read(caller, i int) error {
	var version int64
	var data []byte
	return r.pool.QueryRow(context.Background(), r.selects, rawKey(caller, i)).Scan(&version, &data)
}

func (r *rawPostgres) create(_, i int) error {
	_, err := r.pool.Exec(context.Background(), r.inserts, newName(), r.data[i%payloads])
	return err
}

func (r *rawPostgres) createAndDelete(_, i int) error {
	name := newName()
	_, err := r.pool.Exec(context.Background(), r.inserts, name, r.data[i%payloads])
	if err == nil {
		_, err = r.pool.Exec(context.Background(), r.deletes, name)
	}
	return err
}

// alternating returns an operation that is one and the other in turn.
func alternating(one, other func(caller, i int) error) func(caller, i int) error {
	return func(caller, i int) error {
		if i%2 == 0 {
			return one(caller, i)
		}
		return other(caller, i)
	}
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
