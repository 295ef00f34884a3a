//go:build integration

package postgres

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	past "github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/resourcepb"
)

// TestChangedSince reads and counts spans at every revision of a random history: spans without changes since, and spans with keys
// that were created, changed, deleted and created again.
func TestChangedSince(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	seed := rand.Uint64()
	t.Log("seed", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	b := opened(t, ctx)
	h, _ := storage.As[past.Historian](b)
	const keys, changes = 8, 80
	id := func(i int) *resourcepb.ID { return named(fmt.Sprint("k", i), "").Id }
	now := map[int]int64{} // keys with the revisions of their last changes
	states := map[int64]map[int]int64{}
	for n := range changes {
		i := random.IntN(keys)
		if n > changes/2 {
			i %= keys / 2 // the others have not changed since
		}
		swap := past.Swap{Expect: now[i]}
		if now[i] != 0 && random.IntN(2) == 0 {
			swap.Delete = id(i)
		} else {
			swap.Write = named(fmt.Sprint("k", i), fmt.Sprint(n))
		}
		done, err := h.Swap(ctx, swap)
		if err != nil || !done.Done {
			t.Fatal(done, err)
		}
		if delete(now, i); swap.Write != nil {
			now[i] = done.Revision
		}
		states[done.Revision] = maps.Clone(now)
	}
	quiet := 0
	for revision, state := range states {
		for range 3 {
			from, to := random.IntN(keys), random.IntN(keys+1)
			if from > to {
				from, to = to, from
			}
			span := past.Range{From: id(from), To: id(to)}
			limit := 1 + random.IntN(keys)
			scan, err := h.Scan(ctx, span, past.ScanOptions{Revision: revision, Limit: limit, Count: true})
			if err != nil {
				t.Fatal(err)
			}
			var want, got []string
			for i := from; i < to; i++ {
				if state[i] != 0 {
					want = append(want, fmt.Sprint(i, " ", state[i]))
				}
			}
			for _, r := range scan.Records {
				var i int
				_, _ = fmt.Sscanf(r.Resource.GetId().GetName(), "k%d", &i)
				got = append(got, fmt.Sprint(i, " ", r.Modified))
			}
			if from >= keys/2 {
				quiet++
			}
			if int(scan.Count) != len(want) || !slices.Equal(got, want[:min(limit, len(want))]) || scan.More != (len(want) > limit) {
				t.Fatalf("from %d to %d at revision %d: %v of %d, more: %v, expected %d of %v", from, to, revision, got, scan.Count, scan.More, limit, want)
			}
		}
	}
	if quiet == 0 {
		t.Error("no span without changes was read")
	}
}

// TestManyChangesSince counts with a log that is too long to be scanned.
func TestManyChangesSince(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	b := opened(t, ctx)
	r := b.handle.historian
	conn := acquire(t, ctx, r.main)
	first, end := key.Of(named("a", "").Id).Bytes(), key.Of(named("c", "").Id).Bytes()
	for most, want := range map[int]bool{2: false, 3: true} {
		var counted *int64
		var unchanged bool
		if err := conn.QueryRow(ctx, r.history.sql.countSince, first, end, nil, 0, 0, most).Scan(&counted); err != nil {
			t.Fatal(err)
		}
		if err := conn.QueryRow(ctx, r.history.sql.noChangeSince, end, append(end, 0), 0, 0, most).Scan(&unchanged); err != nil {
			t.Fatal(err)
		}
		if (counted != nil) != want || counted != nil && *counted != 0 || unchanged {
			t.Errorf("of 3 changes, with a limit of %d: counted %v, unchanged: %v", most, counted, unchanged)
		}
		if err := conn.QueryRow(ctx, r.history.sql.noChangeSince, append(end, 0), afterAll, 0, 0, most).Scan(&unchanged); err != nil {
			t.Fatal(err)
		}
		if unchanged != want {
			t.Errorf("after all keys, of 3 changes, with a limit of %d: unchanged: %v", most, unchanged)
		}
	}
}
