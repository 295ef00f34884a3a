//go:build integration && soak

package etcdserver_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

const (
	// changers is the number of concurrent writers, each with its own keys.
	changers       = 16
	keysPerChanger = 64
	// stages is the number of progress reports and compactions.
	stages = 20
)

// TestManyChanges changes some keys ASHLAR_CHANGES times, 1,000,000 by default, like kube-apiserver, and compacts like it, up to the
// previous compaction. The size of the store must not grow with the number of changes.
func TestManyChanges(t *testing.T) {
	t.Parallel()
	changes := 1_000_000
	if text := os.Getenv("ASHLAR_CHANGES"); text != "" {
		var err error
		if changes, err = strconv.Atoi(text); err != nil || changes < stages {
			t.Fatalf("ASHLAR_CHANGES=%s, want a number of %d at least", text, stages)
		}
	}
	// They run sequentially, so that each figure belongs to one database.
	t.Run("sqlite", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "store.db")
		manyChanges(t, "sqlite:"+file, changes, func(t *testing.T) int64 {
			size := int64(0)
			for _, part := range []string{"", "-wal"} {
				info, err := os.Stat(file + part)
				if err != nil {
					t.Fatal(err)
				}
				size += info.Size()
			}
			return size
		})
	})
	t.Run("postgres", func(t *testing.T) {
		server := env.StartPostgres(t)
		store := server.StoreURL(t, "retention=5m") // the retention removes old changes twenty times in that period
		log := schemaOf(t, store) + ".changes"
		db := server.Connect(t)
		manyChanges(t, store, changes, func(t *testing.T) (size int64) {
			err := db.QueryRow(t.Context(), "select pg_total_relation_size($1)", log).Scan(&size)
			if err != nil {
				t.Fatal(err)
			}
			return size
		})
	})
}

// schemaOf returns the schema in a store's URL.
func schemaOf(t *testing.T, store string) string {
	t.Helper()
	u, err := url.Parse(store)
	if err != nil {
		t.Fatal(err)
	}
	schema := u.Query().Get("schema")
	if schema == "" {
		t.Fatalf("the URL of the store names no schema: %s", u.Redacted())
	}
	return schema
}

func manyChanges(t *testing.T, store string, changes int, size func(t *testing.T) int64) {
	t.Helper()
	c := client(t, serve(t, fixture.Open(t, store), nil))
	w := &changer{client: c, value: strings.Repeat("v", 500)}
	var sizes []int64
	var p99s []time.Duration
	var compacted, next int64
	for stage := range stages {
		began := time.Now()
		latencies := w.change(t, changes/stages)
		slices.Sort(latencies)
		p99s, sizes = append(p99s, latencies[len(latencies)*99/100]), append(sizes, size(t))
		t.Logf("%8d changes, %5.0f/s, writes take %v, p99 %v; %.1f MB are kept, compacted at %d", (stage+1)*changes/stages,
			float64(len(latencies))/time.Since(began).Seconds(), latencies[len(latencies)/2], p99s[stage], float64(sizes[stage])/1e6, compacted)
		if next > 0 {
			if _, err := c.Compact(t.Context(), next); err != nil {
				t.Fatal(err)
			}
			compacted = next
		}
		answer, err := c.Get(t.Context(), "none")
		if err != nil {
			t.Fatal(err)
		}
		next = answer.Header.Revision
	}
	// Deletion follows compaction, and reuse of free space follows deletion, so the store grows for a while before it stops.
	begin, end := slices.Max(sizes[:stages/2]), slices.Max(sizes[stages/2:])
	t.Logf("p99 %v in the first tenth, %v in the last; at most %.1f MB in the first half, %.1f MB in the second",
		max(p99s[0], p99s[1]), max(p99s[stages-2], p99s[stages-1]), float64(begin)/1e6, float64(end)/1e6)
	if end > begin+begin/2 {
		t.Errorf("the store grows: from %d to %d bytes", begin, end)
	}
}

// changer changes keys by compare-and-swap.
type changer struct {
	client    *clientv3.Client
	value     string
	revisions [changers][keysPerChanger]int64
}

// change makes changes and returns their latencies.
func (w *changer) change(t *testing.T, changes int) []time.Duration {
	t.Helper()
	var left atomic.Int64
	left.Store(int64(changes))
	var mu sync.Mutex
	var all []time.Duration
	var failed error
	var running sync.WaitGroup
	for n := range changers {
		running.Go(func() {
			latencies, err := w.changeAs(t.Context(), n, &left)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, latencies...)
			if err != nil {
				failed = err
			}
		})
	}
	running.Wait()
	if failed != nil {
		t.Fatal(failed)
	}
	return all
}

func (w *changer) changeAs(ctx context.Context, n int, left *atomic.Int64) (latencies []time.Duration, err error) {
	for i := 0; left.Add(-1) >= 0; i++ {
		key, known := fmt.Sprintf("/registry/pods/ns-%d/pod-%d", n, i%keysPerChanger), &w.revisions[n][i%keysPerChanger]
		began := time.Now()
		answer, err := w.client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", *known)).
			Then(clientv3.OpPut(key, w.value)).Else(clientv3.OpGet(key)).Commit()
		if err != nil {
			return latencies, err
		}
		if !answer.Succeeded {
			return latencies, fmt.Errorf("%s was not at revision %d", key, *known)
		}
		*known = answer.Header.Revision
		latencies = append(latencies, time.Since(began))
	}
	return latencies, nil
}
