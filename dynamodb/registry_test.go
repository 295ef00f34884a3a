package dynamodb_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/dynamofake"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// boxIn returns a new box in a bucket of a store with 32.
func boxIn(bucket byte, prefix string) *resourcepb.Resource {
	for i := 0; ; i++ {
		name := fmt.Sprint(prefix, i)
		if bucketOf([]byte("default\x00default\x00"+name)) == bucket {
			return box(name, nil)
		}
	}
}

// bucketOf returns the bucket of a sort key in a store with 32.
func bucketOf(sortKey []byte) byte {
	h := sha256.Sum256(sortKey)
	return h[0] % 32
}

// expectBoxes checks that a list contains exactly these boxes.
func expectBoxes(t *testing.T, what string, b storage.Backend, consistency storage.ReadConsistency, want ...*resourcepb.Resource) {
	t.Helper()
	for call, typ := range map[string]storage.UnversionedType{"list": boxType, "wildcard list": fixture.AllTypes} {
		all, err := b.List(t.Context(), consistency, typ, tenancy, "")
		if err != nil {
			t.Fatal(err)
		}
		got, expected := names(all), names(want)
		slices.Sort(expected)
		if !slices.Equal(got, expected) {
			t.Errorf("%s: the %s contains %v, expected %v", what, call, got, expected)
		}
	}
}

// 10,000 writes a second, of two units each, of 1,000 resources with rising names take less than a partition's 1,000 units of each partition key
// of a new store. The test makes a tenth of them, with a tenth of the units. A store without buckets is throttled.
func TestHeat(t *testing.T) {
	t.Parallel()
	for name, buckets := range map[string]int{"Default": 0, "WithoutBuckets": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := dynamofake.New(t)
			b := handle(t, s, withBuckets(buckets))
			s.SetWriteLimit(100)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s.SetGate(func(string) {
				if s.Throttles() > 0 {
					cancel() // a throttled write is repeated until its context ends
				}
			})
			var g errgroup.Group
			g.SetLimit(16)
			data := content(1, 900, false)
			for i := range 1000 {
				g.Go(func() error {
					_, err := b.WriteCAS(ctx, box(fmt.Sprintf("01KB%022d", i), data))
					return err
				})
			}
			err := g.Wait()
			if throttled := s.Throttles() > 0; throttled != (buckets == 1) || (err != nil) != throttled {
				t.Errorf("%d requests were throttled: %v", s.Throttles(), err)
			}
		})
	}
}

// Handles create resources in new buckets of a type at the same time. Each entry includes those of the other handles.
func TestConcurrentEntries(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	freezer := dynamofake.NewFreezer("TransactWriteItems")
	a, other := handleThrough(t, s, freezer.Option), handle(t, s)
	want := []*resourcepb.Resource{fixture.Write(t, a, boxIn(0, "first-"))}
	freezer.Freeze()
	written := make(chan error, 1)
	late := boxIn(1, "late-")
	go func() {
		_, err := a.WriteCAS(t.Context(), late)
		written <- err
	}()
	freezer.Wait()
	expectBoxes(t, "before the entry", other, storage.StrongConsistency, want...)
	want = append(want, fixture.Write(t, other, boxIn(2, "other-")))
	freezer.Thaw()
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	want = append(want, late)
	for name, b := range map[string]storage.Backend{"the frozen handle": a, "the other handle": other, "a new handle": handle(t, s)} {
		expectBoxes(t, name, b, storage.StrongConsistency, want...)
	}
}

// A handle that has listed a type sees a resource that another handle creates in a new bucket: in the next list, strong or eventual, in pages, in
// snapshots, and in an eventual list after the event of a watch.
func TestListsContainNewBuckets(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	s.SetLag(1) // eventual reads lack the last state of each item
	writer, b := handle(t, s), handle(t, s)
	w := opened(t, b)
	afterSnapshot(t, w)
	var want []*resourcepb.Resource
	for _, buckets := range [][2]byte{{0, 1}, {7, 8}, {1, 7}, {8, 32}} {
		var ops []storage.Op
		for bucket := buckets[0]; bucket < buckets[1]; bucket++ {
			ops = append(ops, storage.Op{Write: boxIn(bucket, "box-")})
		}
		created, err := writer.Commit(t.Context(), ops)
		if err != nil {
			t.Fatal(err)
		}
		for range created {
			fixture.Next(t, w)
		}
		want = append(want, created...)
		expectBoxes(t, "after an event", b, storage.EventualConsistency, want...)
		expectBoxes(t, "after a creation", b, storage.StrongConsistency, want...)
		page, err := b.ListPage(t.Context(), boxType, tenancy, "", storage.ListOptions{Consistency: storage.StrongConsistency, Limit: 100})
		if err != nil || len(page.Resources) != len(want) {
			t.Errorf("a page has %d resources, expected %d: %v", len(page.Resources), len(want), err)
		}
	}
	if shown := afterSnapshot(t, opened(t, b)); len(shown) != len(want) {
		t.Errorf("a snapshot has %d resources, expected %d", len(shown), len(want))
	}
}

// A table is deleted and restored from a backup under its name, in which the type uses fewer buckets than open handles have seen. New resources are
// in the lists of all handles, also those of a creation that was suspended between the entry of its bucket and its request.
func TestBucketsAfterRestore(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	freezer := dynamofake.NewFreezer("PutItem")
	b := handleThrough(t, s, freezer.Option)
	early := fixture.Write(t, b, boxIn(0, "early-"))
	backup := s.Backup()
	for bucket := range byte(31) {
		fixture.Write(t, b, boxIn(bucket, "lost-"))
	}
	freezer.Freeze()
	written := make(chan error, 1)
	late := boxIn(31, "late-")
	go func() {
		_, err := b.WriteCAS(t.Context(), late)
		written <- err
	}()
	freezer.Wait() // the bucket is entered: the type uses all
	if _, err := b.List(t.Context(), storage.StrongConsistency, boxType, tenancy, ""); err != nil {
		t.Fatal(err)
	}
	s.Restore(backup)
	s.Advance(time.Minute)                                                                   // a table is not restored faster
	if _, err := b.Read(t.Context(), storage.StrongConsistency, early.GetId()); err != nil { // learns the time
		t.Fatal(err)
	}
	freezer.Thaw()
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	again := fixture.Write(t, b, boxIn(7, "again-"))
	for name, b := range map[string]storage.Backend{"the same handle": b, "another handle": handle(t, s)} {
		expectBoxes(t, name, b, storage.StrongConsistency, early, late, again)
	}
}

// The first creation in a bucket takes one request more, many in one transaction or at one moment take few, and a list queries the used buckets
// only. A list of a type that uses all buckets does not read their set.
func TestRequestsForBuckets(t *testing.T) {
	t.Parallel()
	countRequests(t, func() []string { return requestsForBuckets(t) })
}

// requestsForBuckets returns the differences from the expected numbers of requests.
func requestsForBuckets(t *testing.T) (differences []string) {
	s := dynamofake.New(t)
	b := handle(t, s)
	fixture.Write(t, b, boxIn(0, "first-"))
	expect := func(what string, want map[string]int, do func()) {
		t.Helper()
		before := map[string]int{}
		for op := range want {
			before[op] = s.Calls(op)
		}
		do()
		for op, n := range want {
			if got := s.Calls(op) - before[op]; got != n {
				differences = append(differences, fmt.Sprintf("%s: %d requests %s, expected %d", what, got, op, n))
			}
		}
	}
	list := func() {
		if _, err := b.List(t.Context(), storage.StrongConsistency, boxType, tenancy, ""); err != nil {
			t.Fatal(err)
		}
	}
	expect("a list of another type", map[string]int{"GetItem": 1, "Query": 0}, func() {
		if all, err := b.List(t.Context(), storage.StrongConsistency, storage.UnversionedType{Group: "test", Kind: "None"}, tenancy, ""); err != nil || len(all) > 0 {
			t.Fatal(all, err)
		}
	})
	expect("a creation", map[string]int{"TransactGetItems": 0, "TransactWriteItems": 0, "PutItem": 1}, func() { fixture.Write(t, b, boxIn(0, "second-")) })
	expect("a creation in a new bucket", map[string]int{"TransactGetItems": 0, "TransactWriteItems": 1, "PutItem": 1}, func() { fixture.Write(t, b, boxIn(1, "box-")) })
	expect("a list", map[string]int{"GetItem": 1, "Query": 2}, list)
	expect("a transaction", map[string]int{"TransactGetItems": 0, "TransactWriteItems": 2}, func() {
		var ops []storage.Op
		for bucket := range byte(30) {
			ops = append(ops, storage.Op{Write: boxIn(bucket, "all-")})
		}
		if _, err := b.Commit(t.Context(), ops); err != nil {
			t.Fatal(err)
		}
	})
	expect("concurrent creations", map[string]int{"TransactGetItems": 0, "PutItem": 2}, func() {
		var writers sync.WaitGroup
		for bucket := range byte(2) {
			writers.Go(func() { fixture.Write(t, b, boxIn(30+bucket, "last-")) })
		}
		writers.Wait()
	})
	expect("a list of all buckets", map[string]int{"GetItem": 0, "Query": 32}, list)
	return differences
}

// A store of the development schema 2, whose types have no sets of used buckets, is used without them, so that programs of that schema can use it as
// well. Such programs refuse a new store.
func TestStoreWithoutUsedSets(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	db, _ := s.Clients(t)
	table := rawTable{t, db}
	_ = handle(t, s).Close()
	always := func(rawItem) bool { return true }
	store := table.find('s', always)
	if store.bytes("schema")[0] != 3 {
		t.Errorf("a new store has schema %d", store.bytes("schema"))
	}
	store.set("schema", []byte{2})
	table.put(store)
	b := handle(t, s)
	want := []*resourcepb.Resource{fixture.Write(t, b, boxIn(3, "a-")), fixture.Write(t, b, boxIn(9, "b-"))}
	if entry := table.find('t', always); entry.bytes("b") != nil {
		t.Error("an entry has a set of used buckets")
	}
	expectBoxes(t, "the handle", b, storage.StrongConsistency, want...)
	expectBoxes(t, "a new handle", handle(t, s), storage.StrongConsistency, want...)
	store.set("schema", []byte{4})
	table.put(store)
	if _, err := newHandle(t, s); err == nil {
		t.Error("a store of a newer schema was opened")
	}
}
