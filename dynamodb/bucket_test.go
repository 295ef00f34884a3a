package dynamodb_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/dynamodb"
	"github.com/ashlar-dev/storage/internal/test/dynamofake"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/migrate"
	"github.com/ashlar-dev/storage/resourcepb"
)

func withBuckets(n int) func(*dynamodb.Options) { return func(o *dynamodb.Options) { o.Buckets = n } }

// names returns the names of resources.
func names(all []*resourcepb.Resource) (names []string) {
	for _, res := range all {
		names = append(names, res.GetId().GetTenancy().GetNamespace()+"/"+res.GetId().GetName())
	}
	return names
}

// A store with buckets returns the same lists, pages and snapshots as one without, in the same order, strongly and eventually.
func TestBucketsAreMerged(t *testing.T) {
	t.Parallel()
	const boxes = 60
	var plain []string
	for _, buckets := range []int{1, 4} {
		s := dynamofake.New(t)
		b := handle(t, s, withBuckets(buckets))
		w := opened(t, b)
		afterSnapshot(t, w)
		for i := range boxes {
			res := box(fmt.Sprintf("box-%03d", i*7%boxes), nil)
			res.Id.Tenancy = &resourcepb.Tenancy{Partition: "default", Namespace: []string{"default", "other"}[i%2]}
			res = fixture.Write(t, b, res)
			if i%10 == 3 {
				fixture.Remove(t, b, res)
			}
		}
		s.SetLag(1) // eventual reads lack the last state of each resource
		var got []string
		for _, namespace := range []string{"default", "other", storage.Wildcard} {
			for _, prefix := range []string{"", "box-01", "box-011", "none"} {
				in := &resourcepb.Tenancy{Partition: "default", Namespace: namespace}
				var lists [3][]string
				for i, consistency := range []storage.ReadConsistency{storage.StrongConsistency, storage.EventualConsistency} {
					all, err := b.List(t.Context(), consistency, boxType, in, prefix)
					if err != nil {
						t.Fatal(err)
					}
					lists[i] = names(all)
				}
				for opts := (storage.ListOptions{Consistency: storage.StrongConsistency, Limit: 20}); ; {
					page, err := b.ListPage(t.Context(), boxType, in, prefix, opts)
					if err != nil {
						t.Fatal(err)
					}
					lists[2] = append(lists[2], names(page.Resources)...)
					if opts.Continue = page.Continue; opts.Continue == "" {
						break
					}
				}
				if !slices.Equal(lists[0], lists[1]) || !slices.Equal(lists[0], lists[2]) {
					t.Errorf("%d buckets, %s/%s: strong %v, eventual %v, pages %v", buckets, namespace, prefix, lists[0], lists[1], lists[2])
				}
				got = append(got, fmt.Sprint(namespace, prefix, lists[0]))
			}
		}
		if shown := afterSnapshot(t, opened(t, handle(t, s))); len(shown) == 0 {
			t.Error("the snapshot is empty")
		}
		if plain == nil {
			plain = got
		} else if !slices.Equal(got, plain) {
			t.Errorf("with %d buckets: %v\nwithout: %v", buckets, got, plain)
		}
	}
}

// The number of buckets is fixed when the store is created, to 32 by default. Handles without the parameter accept any number.
func TestBucketsAreFixed(t *testing.T) {
	t.Parallel()
	for _, buckets := range []int{0, 1, 16} {
		s := dynamofake.New(t)
		first := fixture.Write(t, handle(t, s, withBuckets(buckets)), box("a", nil))
		if _, err := newHandle(t, s, withBuckets(4)); !errors.Is(err, storage.ErrInvalid) {
			t.Errorf("opened a store of %d buckets with 4: %v", buckets, err)
		}
		if got := fixture.Stored(t, handle(t, s), first.GetId()); got.GetVersion() != first.GetVersion() {
			t.Errorf("%d buckets: another version of the resource", buckets)
		}
	}
	for _, wrong := range []int{-1, 3, 512} {
		if _, err := newHandle(t, dynamofake.New(t), withBuckets(wrong)); !errors.Is(err, storage.ErrInvalid) {
			t.Errorf("%d buckets: %v", wrong, err)
		}
	}
}

// A migration moves a store without buckets to one with buckets, under another prefix of the table.
func TestMigrateToBuckets(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	from, to := handle(t, s, withBuckets(1)), handle(t, s, func(o *dynamodb.Options) {
		o.Prefix, o.FenceWait = "new", 400*time.Millisecond
	})
	owner := fixture.Write(t, from, box("owner", nil))
	for i := range 40 {
		res := box(fmt.Sprintf("box-%02d", i), []byte("data"))
		res.Owner = owner.GetId()
		fixture.Write(t, from, res)
	}
	result, err := migrate.Run(t.Context(), from, to, &migrate.Options{})
	if err != nil || !result.Report.Equal() {
		t.Fatalf("%v: %+v", err, result)
	}
	children, err := to.OwnerReferences(t.Context(), owner.GetId())
	if err != nil || len(children) != 40 {
		t.Errorf("%d children of the owner: %v", len(children), err)
	}
}
