//go:build integration

package etcd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/resourcepb"
)

// storeWithCommits returns a store with commits of several resources each, with names in order, and the revision before them.
func storeWithCommits(t *testing.T, ctx context.Context, commits, together, size int) (b *Backend, from int64) {
	t.Helper()
	u, err := url.Parse(env.Etcd(t).StoreURL(t))
	if err != nil {
		t.Fatal(err)
	}
	if b, err = Open(ctx, u); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	if from, err = b.handle.revision(ctx); err != nil {
		t.Fatal(err)
	}
	for i := range commits {
		ops := make([]storage.Op, together)
		for j := range ops {
			ops[j].Write = &resourcepb.Resource{
				Id: &resourcepb.ID{Uid: "uid", Name: fmt.Sprintf("%02d-%d", i, j), Type: &resourcepb.Type{Group: "g", GroupVersion: "v1", Kind: "K"},
					Tenancy: &resourcepb.Tenancy{Partition: "p", Namespace: "n"}},
				Data: &anypb.Any{TypeUrl: "example.com/T", Value: bytes.Repeat([]byte{'x'}, size)},
			}
		}
		if _, err := b.Commit(ctx, ops); err != nil {
			t.Fatal(err)
		}
	}
	return b, from
}

var everything = key.Filter{Group: storage.Wildcard, Kind: storage.Wildcard, Partition: storage.Wildcard, Namespace: storage.Wildcard}

// A list reads a bounded number of bytes into memory at a time, also if the resources are larger than the ones before.
func TestListChunksAreBoundedInBytes(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	const commits, together, size = 12, 4, 240 << 10
	b, _ := storeWithCommits(t, ctx, commits, together, size)
	l := newListing(b.handle.conn, &everything, storage.StrongConsistency)
	l.chunk = maxChunk // the chunk size after many small resources
	var names []string
	for l.more {
		if err := l.fetch(ctx); err != nil {
			t.Fatal(err)
		}
		got := 0
		for _, kv := range l.kvs {
			got += len(kv.Value)
		}
		if got > maxResponseBytes {
			t.Errorf("a chunk has %d bytes, expected %d at most", got, maxResponseBytes)
		}
		for len(l.kvs) > 0 {
			k, _, err := l.first()
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, k.Name)
		}
	}
	if len(names) != commits*together || !slices.IsSorted(names) {
		t.Errorf("listed %q", names)
	}
}

// ReadAt counts the resources that the filter matches within the bounds at that revision. It rejects a position inside a revision.
func TestReadAtWithFilter(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	b, _ := storeWithCommits(t, ctx, 12, 4, 100)
	rev, err := b.handle.revision(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		prefix, from string
		want         int64
	}{{"", "", 48}, {"0", "", 40}, {"03-", "", 4}, {"0", "05", 20}, {"none", "", 0}} {
		f := everything
		f.NamePrefix = c.prefix
		at := endOf(rev)
		q := &driver.HistoryQuery[position]{At: &at, Filter: &f, Limit: 3, Count: true}
		if c.from != "" {
			q.From = key.Key{Group: "g", Kind: "K", Partition: "p", Namespace: "n", Name: c.from}.Bytes()
		}
		var n int64
		past, err := b.handle.ReadAt(ctx, q, func(*driver.Version) error { n++; return nil })
		if err != nil || past.Count != c.want || n != min(3, c.want) || past.More != (c.want > 3) || past.At != at {
			t.Errorf("%+v: %d read, %+v, %v", c, n, past, err)
		}
	}
	inside := position{rev, "g"}
	_, err = b.handle.ReadAt(ctx, &driver.HistoryQuery[position]{At: &inside}, func(*driver.Version) error { return nil })
	if !errors.Is(err, storage.ErrInvalid) {
		t.Errorf("read inside a revision: %v, expected ErrInvalid", err)
	}
}

// etcd sends up to 1,000 revisions at once to a watch that lags. A page of history is limited by its bytes, ends at a complete revision, and
// all pages together have no gap.
func TestHistoryPagesAreBoundedInBytes(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	const commits, together, size = 12, 4, 240 << 10
	b, from := storeWithCommits(t, ctx, commits, together, size)
	h := newSource(b.handle.conn).History(endOf(from), &everything)
	defer h.Close()
	var names []string
	pages := 0
	for more := true; more; pages++ {
		var events []*event
		var err error
		if events, _, more, err = h.Page(ctx, 500); err != nil {
			t.Fatal(err)
		}
		got := 0
		for _, ev := range events {
			got += ev.Size
			names = append(names, ev.Key.Name)
		}
		// The last response may exceed the limit, with a revision that started in the response before.
		if limit := driver.PageBytes + 3*together*size; got > limit {
			t.Errorf("page %d has %d events of %d bytes, expected %d bytes at most", pages, len(events), got, limit)
		}
	}
	if pages < 2 || len(names) != commits*together {
		t.Fatalf("%d pages of %d events, expected several, of %d", pages, len(names), commits*together)
	}
	for i, name := range names {
		if want := fmt.Sprintf("%02d-%d", i/together, i%together); name != want {
			t.Fatalf("event %d is of %s, expected %s", i, name, want)
		}
	}
}
