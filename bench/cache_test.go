//go:build integration

package bench

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	memdb "github.com/hashicorp/go-memdb"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/cache"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/replica"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/resourcepb"
)

// cachedType is the type of the resources in these benchmarks.
var cachedType = storage.UnversionedType{Group: "bench", Kind: "Thing"}

// cachedPayload is the payload of each resource.
var cachedPayload = payload(500)

func cachedResource(i int) *resourcepb.Resource {
	return &resourcepb.Resource{
		Id: &resourcepb.ID{Uid: "uid", Name: fmt.Sprintf("%06d", i), Type: &resourcepb.Type{Group: "bench", GroupVersion: "v1", Kind: "Thing"},
			Tenancy: &resourcepb.Tenancy{Partition: "default", Namespace: "default"}},
		Metadata: map[string]string{"made-by": "bench"},
		Data:     &anypb.Any{TypeUrl: "example.com/bench.Thing", Value: cachedPayload},
	}
}

// fillCached writes resources, 32 at a time.
func fillCached(b *testing.B, backend storage.Backend, n int) {
	b.Helper()
	tx, _ := storage.As[storage.Transactor](backend)
	for i := 0; i < n; i += 32 {
		var ops []storage.Op
		for j := i; j < min(n, i+32); j++ {
			ops = append(ops, storage.Op{Write: cachedResource(j)})
		}
		must(tx.Commit(context.Background(), ops))
	}
}

// BenchmarkCachePostgres reads from a cache beside a statement on the same server, and runs 256 concurrent strong reads.
func BenchmarkCachePostgres(b *testing.B) {
	ctx := context.Background()
	server := env.Postgres(b)
	backend := must(storage.Open(ctx, server.StoreURL(b)))
	c := must(cache.New(ctx, backend, nil))
	defer c.Close()
	fillCached(b, c, 1000)
	id := cachedResource(500).Id
	b.Run("raw", func(b *testing.B) {
		pool := must(pgxpool.New(ctx, server.URL))
		defer pool.Close()
		must(pool.Exec(ctx, `create table if not exists cache_raw (id text primary key, data bytea not null)`))
		must(pool.Exec(ctx, `insert into cache_raw values ('a', $1) on conflict do nothing`, payload(500)))
		for b.Loop() {
			var data []byte
			if err := pool.QueryRow(ctx, `select data from cache_raw where id = $1`, "a").Scan(&data); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("eventual", func(b *testing.B) {
		for b.Loop() {
			must(c.Read(ctx, storage.EventualConsistency, id))
		}
	})
	b.Run("strong", func(b *testing.B) {
		for b.Loop() {
			must(c.Read(ctx, storage.StrongConsistency, id))
		}
	})
	b.Run("strong-256", func(b *testing.B) {
		for b.Loop() {
			var readers sync.WaitGroup
			for range 256 {
				readers.Go(func() { must(c.Read(ctx, storage.StrongConsistency, id)) })
			}
			readers.Wait()
		}
	})
}

// BenchmarkCachePrime fills a cache with 100,000 resources from SQLite, and prints its contents.
func BenchmarkCachePrime(b *testing.B) {
	ctx := context.Background()
	path := "sqlite://" + filepath.Join(b.TempDir(), "prime.db")
	filled := must(storage.Open(ctx, path))
	const n = 100_000
	fillCached(b, filled, n)
	encoded := 0
	for i := range n {
		encoded += proto.Size(cachedResource(i))
	}
	must(0, filled.Close())
	heap := func() int {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	for b.Loop() {
		backend := must(storage.Open(ctx, path))
		before := heap()
		began := time.Now()
		c := must(cache.New(ctx, backend, nil))
		took := time.Since(began)
		grown := heap() - before
		b.ReportMetric(took.Seconds(), "s/prime")
		b.ReportMetric(float64(grown)/n, "B/resource")
		b.ReportMetric((float64(grown)-1.3*float64(encoded))/n, "B-over-1.3x")
		b.ReportMetric(float64(c.Stats().Bytes)/n, "reported-B/resource")
		must(0, c.Close())
	}
}

// BenchmarkCacheMemDB compares the engine's look-ups, ranges and writes with go-memdb.
func BenchmarkCacheMemDB(b *testing.B) {
	const n = 100_000
	ctx := context.Background()
	backend := must(storage.Open(ctx, "mem://"))
	defer backend.Close()
	fillCached(b, backend, n)
	r := must(replica.Open(ctx, backend, replica.Options[*resourcepb.Resource]{
		Types: []storage.UnversionedType{cachedType}, Decode: func(res *resourcepb.Resource) *resourcepb.Resource { return res }, LogLength: 1,
	}))
	defer r.Close()
	type row struct {
		Name string
		Res  *resourcepb.Resource
	}
	db := must(memdb.NewMemDB(&memdb.DBSchema{Tables: map[string]*memdb.TableSchema{"resource": {Name: "resource", Indexes: map[string]*memdb.IndexSchema{
		"id": {Name: "id", Unique: true, Indexer: &memdb.StringFieldIndex{Field: "Name"}},
	}}}}))
	names, keys := make([]string, n), make([]key.Key, n)
	txn := db.Txn(true)
	for i := range n {
		res := cachedResource(i)
		names[i], keys[i] = res.Id.Name, key.Of(res.Id)
		must(0, txn.Insert("resource", &row{names[i], res}))
	}
	txn.Commit()
	b.Run("lookup/cache", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			if r.Get(keys[i*7919%n]) == nil {
				b.Fatal("nothing")
			}
		}
	})
	b.Run("lookup/memdb", func(b *testing.B) {
		txn := db.Txn(false)
		for i := 0; b.Loop(); i++ {
			if must(txn.First("resource", "id", names[i*7919%n])) == nil {
				b.Fatal("nothing")
			}
		}
	})
	b.Run("range/cache", func(b *testing.B) {
		v := r.View()
		f := key.Filter{Group: "bench", Kind: "Thing", Partition: "default", Namespace: "default", NamePrefix: "050"}
		for b.Loop() {
			seen := 0
			for range v.Select(f) {
				seen++
			}
			if seen != 1000 {
				b.Fatal(seen)
			}
		}
	})
	b.Run("range/memdb", func(b *testing.B) {
		txn := db.Txn(false)
		for b.Loop() {
			seen := 0
			for it := must(txn.Get("resource", "id_prefix", "050")); it.Next() != nil; {
				seen++
			}
			if seen != 1000 {
				b.Fatal(seen)
			}
		}
	})
	b.Run("write/cache", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			res := cachedResource(i * 7919 % n)
			res.Version = fmt.Sprint(i)
			w := r.Begin([]key.Key{keys[i*7919%n]})
			w.End([]*resourcepb.Resource{res}, nil)
		}
	})
	b.Run("write/memdb", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			txn := db.Txn(true)
			must(0, txn.Insert("resource", &row{names[i*7919%n], cachedResource(i * 7919 % n)}))
			txn.Commit()
		}
	})
}
