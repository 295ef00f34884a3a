//go:build integration

package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/resourcepb"
)

// statementLog records the statements of a pool, with their arguments.
type statementLog struct {
	mu         sync.Mutex
	statements []pgx.TraceQueryStartData
}

func (h *statementLog) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.statements = append(h.statements, data)
	return ctx
}

func (*statementLog) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (*statementLog) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (h *statementLog) TraceBatchQuery(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchQueryData) {
	h.TraceQueryStart(ctx, conn, pgx.TraceQueryStartData{SQL: data.SQL, Args: data.Args})
}

func (*statementLog) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// take returns the statements that contain a word, and clears all.
func (h *statementLog) take(word string) []pgx.TraceQueryStartData {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.statements
	h.statements = nil
	return slices.DeleteFunc(all, func(q pgx.TraceQueryStartData) bool { return !strings.Contains(q.SQL, word) })
}

// TestSparseFilter lists 200 of 200,000 resources in every way, and counts the rows that the server reads for each statement.
func TestSparseFilter(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	server := env.Postgres(t)
	traced := new(statementLog)
	schema := server.Schema(t)
	b := openQuiet(t, ctx, server, schema, traced)
	conn := server.Connect(t)
	resources := pgx.Identifier{schema, "resources"}.Sanitize()
	data, err := driver.Encode(&resourcepb.Resource{})
	if err != nil {
		t.Fatal(err)
	}
	// In each of 200 partitions: 500 in a namespace, one in the next, and 499 after it.
	for _, sql := range []string{
		"alter table " + resources + " set (autovacuum_enabled = off)",
		"insert into " + resources + ` (key, uid, version, group_version, data)
			select convert_to('g', 'UTF8') || '\x00' || convert_to('Kind', 'UTF8') || '\x00'
				|| convert_to('part-' || to_char(p, 'FM000'), 'UTF8') || '\x00'
				|| convert_to(case when n < 500 then 'other' when n = 500 then 'shop' else 'tail' end, 'UTF8') || '\x00'
				|| convert_to('name-' || to_char(n, 'FM0000'), 'UTF8'), 'uid', decode(md5(p || '-' || n), 'hex'), 'v1',
				'\x` + fmt.Sprintf("%x", data) + `'
			from generate_series(1, 200) p, generate_series(0, 999) n order by random()`,
		"vacuum analyze " + resources,
	} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			t.Fatal(err)
		}
	}
	filter := driver.Filter{Group: "g", Kind: "Kind", Partition: storage.Wildcard, Namespace: "shop"}
	traced.take("")
	var found keysOnly
	if err := b.handle.List(ctx, storage.StrongConsistency, &filter, &found); err != nil || len(found) != 200 {
		t.Fatalf("%d resources, %v", len(found), err)
	}
	rows := 0.0
	for _, q := range traced.take("resources") {
		rows += rowsRead(ctx, t, conn, q)
	}
	// A step of 16 keys for each of 600 runs, and the matching rows.
	if rows < 200 || rows > 600*20 {
		t.Errorf("200 of 200,000 resources cost %v rows", rows)
	}
}

// TestAnyFilter lists many similar keys by every kind of filter, and compares the results with the filter itself.
func TestAnyFilter(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	b := openHandle(t, ctx, env.Postgres(t).StoreURL(t))
	random := rand.New(rand.NewPCG(3, 4))
	part := func() string { return []string{"", "a", "ab", "b", "a\x01", "%", `\_`, "é"}[random.IntN(8)] }
	all := map[key.Key]bool{}
	for len(all) < 1500 {
		k := key.Key{Group: part(), Kind: part(), Partition: part(), Namespace: part(), Name: "n" + part() + part()}
		if random.IntN(3) == 0 { // long runs, beside short ones
			k.Group, k.Kind, k.Name = "a", "b", fmt.Sprint("n", random.IntN(1000))
		}
		all[k] = true
	}
	keys := slices.SortedFunc(maps.Keys(all), key.Key.Compare)
	for some := range slices.Chunk(keys, maxOps) {
		mutations := make([]driver.Mutation, len(some))
		for i, k := range some {
			mutations[i] = driver.Mutation{Verb: driver.Write, Key: k, Uid: "uid", Resource: &resourcepb.Resource{Id: k.ID("uid", "v1")}}
		}
		if err := b.handle.Apply(ctx, mutations); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 160 {
		of := keys[random.IntN(len(keys))]
		f := driver.Filter{Group: of.Group, Kind: of.Kind, Partition: of.Partition, Namespace: of.Namespace}
		f.NamePrefix = of.Name[:random.IntN(2)+random.IntN(2)*(len(of.Name)-1)]
		for j, unit := range []*string{&f.Group, &f.Kind, &f.Partition, &f.Namespace} {
			if i>>j&1 == 1 {
				*unit = storage.Wildcard
			}
		}
		var want keysOnly
		for _, k := range keys {
			if f.Match(&k) {
				want = append(want, string(k.Bytes()))
			}
		}
		var found keysOnly
		if err := b.handle.List(ctx, storage.StrongConsistency, &f, &found); err != nil || !slices.Equal(found, want) {
			t.Fatalf("%+v: %d keys, expected %d, %v\n%q\n%q", f, len(found), len(want), err, found, want)
		}
	}
}

// keysOnly collects the keys of rows.
type keysOnly []string

func (k *keysOnly) Restart() { *k = nil }

func (k *keysOnly) Add(key, _, _ []byte) error { *k = append(*k, string(key)); return nil }

func (k *keysOnly) AddResource(res *resourcepb.Resource) error {
	return k.Add(key.Of(res.GetId()).Bytes(), nil, nil)
}

// rowsRead executes a statement, and returns how many rows of indexes and tables the server read.
func rowsRead(ctx context.Context, t *testing.T, conn *pgx.Conn, q pgx.TraceQueryStartData) (rows float64) {
	t.Helper()
	var text []byte
	if err := conn.QueryRow(ctx, "explain (analyze, format json) "+q.SQL, q.Args...).Scan(&text); err != nil {
		t.Fatal(err)
	}
	type node struct {
		Plans   []*node
		Type    string  `json:"Node Type"`
		Rows    float64 `json:"Actual Rows"`
		Loops   float64 `json:"Actual Loops"`
		Removed float64 `json:"Rows Removed by Filter"`
	}
	var plans []struct{ Plan *node }
	if err := json.Unmarshal(text, &plans); err != nil {
		t.Fatal(err)
	}
	var count func(n *node)
	count = func(n *node) {
		switch n.Type {
		case "Index Scan", "Index Only Scan", "Seq Scan", "Bitmap Heap Scan":
			rows += (n.Rows + n.Removed) * n.Loops
		}
		for _, child := range n.Plans {
			count(child)
		}
	}
	count(plans[0].Plan)
	return rows
}
