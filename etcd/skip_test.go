//go:build integration

package etcd_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/etcd"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// fillPartitions writes many services to one namespace of each partition, and two to the namespace "wanted".
func fillPartitions(t *testing.T, b *etcd.Backend, partitions, crowd int) (wanted []string) {
	t.Helper()
	var writers sync.WaitGroup
	for p := range partitions {
		for i := range crowd + 2 {
			name := fmt.Sprintf("s-%03d-%04d", p, i)
			res := service(name)
			res.Id.Tenancy = &resourcepb.Tenancy{Partition: fmt.Sprintf("p%03d", p), Namespace: "crowd"}
			if i < 2 {
				res.Id.Tenancy.Namespace = "wanted"
				wanted = append(wanted, name)
			}
			writers.Go(func() {
				if _, err := b.WriteCAS(fixture.Context(t), res); err != nil {
					t.Errorf("write: %v", err)
				}
			})
		}
		writers.Wait()
	}
	return wanted
}

const rangeMethod = "/etcdserverpb.KV/Range"

// A list, a page and the snapshot of a watch skip long runs of resources that do not match. They read short runs in large chunks.
func TestFiltersSkip(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ partitions, crowd, requests, keys int }{
		{4, 1500, 4*2 + 4, 700},
		{150, 3, 6, 2000},
	} {
		t.Run(fmt.Sprint(c.crowd), func(t *testing.T) {
			t.Parallel()
			var sent requests
			b := openThrough(t, env.Etcd(t), grpc.WithUnaryInterceptor(sent.count))
			want := fillPartitions(t, b, c.partitions, c.crowd)
			filter := &resourcepb.Tenancy{Partition: storage.Wildcard, Namespace: "wanted"}
			check := func(name string, got []string) {
				t.Helper()
				if !slices.Equal(got, want) {
					t.Errorf("%s has %v, expected %v", name, got, want)
				}
				if n, keys := sent.take(rangeMethod); n > c.requests || keys > c.keys {
					t.Errorf("%s took %d requests and %d keys, expected at most %d and %d", name, n, keys, c.requests, c.keys)
				}
			}
			sent.take("")
			list, err := b.List(fixture.Context(t), storage.StrongConsistency, serviceType, filter, "")
			if err != nil {
				t.Fatal(err)
			}
			check("the list", names(list))
			page, err := b.ListPage(fixture.Context(t), serviceType, filter, "", storage.ListOptions{Limit: len(want)})
			if err != nil {
				t.Fatal(err)
			}
			check("the page", names(page.Resources))
			w, err := b.WatchList(fixture.Context(t), serviceType, filter, "")
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			sent.take("")
			var got []string
			for ev := fixture.Next(t, w); ev.GetEndOfSnapshot() == nil; ev = fixture.Next(t, w) {
				got = append(got, ev.GetUpsert().GetResource().GetId().GetName())
			}
			check("the snapshot", got)
		})
	}
}

// A page with one match among many resources takes few requests.
func TestSparsePages(t *testing.T) {
	t.Parallel()
	var sent requests
	b := openThrough(t, env.Etcd(t), grpc.WithUnaryInterceptor(sent.count))
	want := fillPartitions(t, b, 100, 3)
	want = want[len(want)/2 : len(want)/2+1]
	filter := &resourcepb.Tenancy{Partition: storage.Wildcard, Namespace: storage.Wildcard}
	sent.take("")
	page, err := b.ListPage(fixture.Context(t), serviceType, filter, want[0], storage.ListOptions{Limit: 1})
	if err != nil || !slices.Equal(names(page.Resources), want) {
		t.Fatalf("the page has %v, %v; expected %v", names(page.Resources), err, want)
	}
	if n, _ := sent.take(rangeMethod); n > 6 {
		t.Errorf("a page with one match among %d resources took %d requests", 500, n)
	}
}

func names(list []*resourcepb.Resource) (names []string) {
	for _, res := range list {
		names = append(names, res.GetId().GetName())
	}
	return names
}
