//go:build integration

package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/resourcepb"
)

// versions is a store in memory: the resource of each key, now and at each revision.
type versions struct {
	now  map[string]driver.Version
	then map[int64]map[string]driver.Version
}

func (m *versions) state(revision int64) (all []driver.Version) {
	state := map[string]driver.Version{}
	var best int64 = -1
	for at, s := range m.then {
		if at <= revision && at > best {
			best, state = at, s
		}
	}
	for _, v := range state {
		all = append(all, v)
	}
	slices.SortFunc(all, func(x, y driver.Version) int { return bytes.Compare(x.Key, y.Key) })
	return all
}

// TestPast changes some keys at random, alone and in transactions, and reads the store after each change: in pages, counted, with
// filters, before and after older changes are compacted and deleted.
func TestPast(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	t.Cleanup(cancel)
	b := openHandle(t, ctx, env.Postgres(t).StoreURL(t))
	h := b.handle
	m := &versions{now: map[string]driver.Version{}, then: map[int64]map[string]driver.Version{1: {}}}
	random := rand.New(rand.NewPCG(1, 2))
	keys := make([]key.Key, 12)
	for i := range keys {
		keys[i] = key.Key{Group: "g", Kind: "Kind", Partition: fmt.Sprint("p", i%3), Namespace: fmt.Sprint("n", i%2), Name: fmt.Sprint("name-", i)}
	}
	apply := func(chosen []key.Key, deletes bool) int64 {
		t.Helper()
		mutations := make([]driver.Mutation, len(chosen))
		for i, k := range chosen {
			v := m.now[string(k.Bytes())]
			mutations[i] = driver.Mutation{Verb: driver.Write, Key: k, Uid: "uid", Version: string(v.Version), Resource: &resourcepb.Resource{Id: k.ID("uid", "v1")}}
			if deletes && v.Version != nil {
				mutations[i] = driver.Mutation{Verb: driver.Delete, Key: k, Uid: "uid", Version: string(v.Version)}
			}
		}
		if err := h.Apply(ctx, mutations); err != nil {
			t.Fatal(err)
		}
		for i, mu := range mutations {
			id := string(chosen[i].Bytes())
			v, there := m.now[id]
			switch {
			case mu.Revision == 0:
				t.Fatalf("mutation %+v has no revision", mu)
			case mu.Verb == driver.Delete:
				delete(m.now, id)
				continue
			case !there:
				v = driver.Version{Key: chosen[i].Bytes(), CreateRevision: mu.Revision}
			}
			v.Version, v.ModRevision, v.Writes = []byte(mu.NewVersion), mu.Revision, v.Writes+1
			m.now[id] = v
		}
		now := map[string]driver.Version{}
		for k, v := range m.now {
			now[k] = v
		}
		m.then[mutations[0].Revision] = now
		return mutations[0].Revision
	}
	var revisions []int64
	for range 400 {
		chosen := []key.Key{keys[random.IntN(len(keys))]}
		if random.IntN(4) == 0 {
			if other := keys[random.IntN(len(keys))]; other != chosen[0] {
				chosen = append(chosen, other)
			}
		}
		revisions = append(revisions, apply(chosen, random.IntN(12) == 0))
	}
	for range 60 {
		revisions = append(revisions, apply(keys[:1], false))
	}
	checkEvery := func(step int, oldest int64) {
		t.Helper()
		for i, revision := range append(revisions, 1, oldest) {
			if i%step > 0 && revision != oldest {
				continue
			}
			at, err := h.PositionAt(ctx, revision)
			if revision < oldest {
				if !errors.Is(err, storage.ErrCompacted) {
					t.Fatalf("revision %d is before %d: %v", revision, oldest, err)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			// The keys that were deleted since are read from the end of the log, or from the index of deletions.
			h.pages.tailLimit = i % 2 * maxIndexedChanges
			checkPast(t, ctx, h, m, revision, &at)
		}
	}
	checkEvery(5, 1)
	newest := revisions[len(revisions)-1]
	checkPast(t, ctx, h, m, newest, nil)
	if _, err := h.PositionAt(ctx, newest+1); !errors.Is(err, storage.ErrFutureRevision) {
		t.Errorf("the revision after the newest: %v", err)
	}
	for _, oldest := range []int64{revisions[0], revisions[100], revisions[300], newest} {
		before, err := h.PositionAt(ctx, revisions[slices.Index(revisions, oldest)])
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Compact(ctx, oldest); err != nil {
			t.Fatal(err)
		}
		checkEvery(29, oldest)
		r := &retention{h.database, h.source.history}
		for more := true; more; {
			if more, err = r.pruneOnce(ctx, time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		checkEvery(29, oldest)
		checkPast(t, ctx, h, m, oldest, &before)
		if got, _, err := h.Revisions(ctx); err != nil || got != oldest {
			t.Errorf("the oldest revision is %d, expected %d, %v", got, oldest, err)
		}
	}
	var left int
	if err := h.database.main.QueryRow(ctx, h.database.sql.withNames(`select count(*) from $changes`)).Scan(&left); err != nil || left > len(keys)+1 {
		t.Errorf("%d changes remain of %d resources, %v", left, len(m.now), err)
	}
}

// checkPast compares the store at a position, or now, with the written resources.
func checkPast(t *testing.T, ctx context.Context, h *handle, m *versions, revision int64, at *position) {
	t.Helper()
	filters := []*driver.Filter{
		nil,
		{Group: "g", Kind: "Kind", Partition: storage.Wildcard, Namespace: "n1"},
		{Group: "g", Kind: storage.Wildcard, Partition: "p1", Namespace: storage.Wildcard, NamePrefix: "name-1"},
		{Group: "g", Kind: "Kind", Partition: "p2", Namespace: "n0"},
	}
	for _, f := range filters {
		var want []driver.Version
		for _, v := range m.state(revision) {
			k, err := key.Parse(v.Key)
			if err != nil {
				t.Fatal(err)
			}
			if f == nil || f.Match(&k) {
				want = append(want, v)
			}
		}
		var got []driver.Version
		q := driver.HistoryQuery[position]{At: at, Filter: f, Limit: 3, Count: true, Final: true}
		for more := true; more; {
			past, err := h.ReadAt(ctx, &q, func(v *driver.Version) error {
				if k, err := key.Parse(v.Key); err != nil {
					t.Error(err)
				} else if _, err := driver.Decode(k, v.Data, string(v.Version)); err != nil {
					t.Error(err)
				}
				got = append(got, driver.Version{Key: v.Key, Version: v.Version, CreateRevision: v.CreateRevision, ModRevision: v.ModRevision, Writes: v.Writes})
				return nil
			})
			if err != nil {
				t.Fatalf("at %d: %v", revision, err)
			}
			if q.From == nil && past.Count != int64(len(want)) {
				t.Fatalf("at %d, %v: counted %d, expected %d", revision, f, past.Count, len(want))
			}
			if r := h.RevisionOf(past.At); r != revision && revision != 1 {
				t.Fatalf("the position is %d, expected %d", r, revision)
			}
			if more = past.More; more {
				q.At, q.From = &past.At, append(bytes.Clone(got[len(got)-1].Key), 0)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("at %d, %v:\n%v, expected\n%v", revision, f, got, want)
		}
	}
}
