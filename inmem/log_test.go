package inmem_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
)

func newArtist(name string, bytesOfData int) *resourcepb.Resource {
	return &resourcepb.Resource{
		Id: &resourcepb.ID{Uid: "uid-" + name, Name: name, Type: &resourcepb.Type{Group: "demo", GroupVersion: "v1", Kind: "Artist"},
			Tenancy: &resourcepb.Tenancy{Partition: "p", Namespace: "n"}},
		Data: &anypb.Any{TypeUrl: "example.com/Artist", Value: bytes.Repeat([]byte{'x'}, bytesOfData)},
	}
}

// heap returns the bytes in use after a garbage collection.
func heap() int {
	runtime.GC()
	runtime.GC() // frees the memory of finalizers and pools
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// nextWithin returns the next event or error of a watch within a minute.
func nextWithin(t *testing.T, w storage.Watch) (*resourcepb.WatchEvent, error) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return w.Next(ctx)
}

// rewrite writes the resource a number of times.
func rewrite(t *testing.T, b storage.Backend, res *resourcepb.Resource, times int) *resourcepb.Resource {
	t.Helper()
	for range times {
		stored, err := b.WriteCAS(t.Context(), res)
		if err != nil {
			t.Fatal(err)
		}
		res.Version = stored.Version
	}
	return res
}

// A stalled watch, in its snapshot or after it, holds no more memory than the bound on history, whatever is written.
// The test is not parallel, because it measures the heap of the process.
func TestStalledWatchesAreBounded(t *testing.T) {
	for _, c := range []struct {
		size, writes, maxGrowth int
		options                 *inmem.Options
	}{
		// The smallest case is first, because garbage of one case may remain when the next one begins.
		{4 << 10, 10_000, 24 << 20, &inmem.Options{HistoryBytes: 8 << 20}},
		{16, 100_000, 32 << 20, &inmem.Options{HistoryBytes: 16 << 20}}, // the memory around small resources exceeds their bytes
		{4 << 10, 50_000, 128 << 20, nil},
		{1 << 19, 500, 128 << 20, nil},
	} {
		t.Run(fmt.Sprintf("%d writes of %d bytes", c.writes, c.size), func(t *testing.T) {
			b := inmem.New(c.options)
			defer b.Close()
			res := rewrite(t, b, newArtist("a", c.size), 1)
			stalled, err := b.WatchList(t.Context(), everything, anywhere(), "")
			if err != nil {
				t.Fatal(err)
			}
			inSnapshot, err := b.WatchList(t.Context(), everything, anywhere(), "")
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if _, err := stalled.Next(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			before := heap()
			rewrite(t, b, res, c.writes)
			if grown := heap() - before; grown > c.maxGrowth {
				t.Errorf("the heap grew by %d MiB, expected %d MiB at most", grown>>20, c.maxGrowth>>20)
			} else {
				t.Logf("the heap grew by %d MiB", grown>>20)
			}
			for phase, w := range map[string]storage.Watch{"after its snapshot": stalled, "in its snapshot": inSnapshot} {
				for err = nil; err == nil; {
					_, err = nextWithin(t, w)
				}
				if !errors.Is(err, storage.ErrWatchClosed) || !errors.Is(err, storage.ErrCompacted) {
					t.Errorf("the watch stalled %s: got error %v, expected ErrWatchClosed and ErrCompacted", phase, err)
				}
			}
		})
	}
}

// Watches stalled in their snapshots and listings that are not continued hold no copy of the store, however many there
// are, and none is refused. The test is not parallel, because it measures the heap of the process.
func TestStalledReadersAreBounded(t *testing.T) {
	const (
		resources, size = 2000, 8 << 10
		rounds          = 15
		maxGrowth       = 128 << 20 // with a copy of the store for each reader: 250 MiB
	)
	b := inmem.New(&inmem.Options{HistoryBytes: 8 << 20})
	defer b.Close()
	versions := make([]string, resources)
	rewriteAll := func() {
		for i := range versions {
			res := newArtist(fmt.Sprintf("artist %03d", i), size)
			res.Version = versions[i]
			versions[i] = rewrite(t, b, res, 1).Version
		}
	}
	firstPage := func() string {
		t.Helper()
		page, err := b.ListPage(t.Context(), everything, anywhere(), "", storage.ListOptions{Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		return page.Continue
	}
	rewriteAll()
	before := heap()
	var tokens []string
	for range rounds {
		if _, err := b.WatchList(t.Context(), everything, anywhere(), ""); err != nil {
			t.Fatal(err)
		}
		tokens = append(tokens, firstPage())
		rewriteAll()
	}
	if grown := heap() - before; grown > maxGrowth {
		t.Errorf("the heap grew by %d MiB, expected at most %d MiB", grown>>20, maxGrowth>>20)
	} else {
		t.Logf("the heap grew by %d MiB", grown>>20)
	}
	if _, err := b.ListPage(t.Context(), everything, anywhere(), "", storage.ListOptions{Continue: tokens[0]}); !errors.Is(err, storage.ErrCompacted) {
		t.Errorf("a page whose history was dropped: got error %v, expected ErrCompacted", err)
	}
	for range 1100 {
		tokens = append(tokens, firstPage())
	}
	if _, err := b.ListPage(t.Context(), everything, anywhere(), "", storage.ListOptions{Continue: tokens[rounds]}); err != nil {
		t.Errorf("the second page of a listing after 1,100 others began: %v", err)
	}
}

// With any bound on history, a watch that keeps up sees every change: history keeps the changes that the feed has not
// taken, and writers wait for the feed.
func TestSmallHistoryKeepsActiveWatches(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string]*inmem.Options{"one change": {History: 1}, "one byte": {HistoryBytes: 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := inmem.New(opts)
			defer b.Close()
			res := rewrite(t, b, newArtist("a", 100), 1)
			w, err := b.WatchList(t.Context(), everything, anywhere(), "")
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if _, err := w.Next(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			// Fewer changes than the feed's log holds, so the watch does not need the history again.
			for range 20 {
				var versions []string
				for range 40 {
					res = rewrite(t, b, res, 1)
					versions = append(versions, res.Version)
				}
				for _, want := range versions {
					ev, err := nextWithin(t, w)
					if err != nil {
						t.Fatal(err)
					}
					if got := ev.GetUpsert().GetResource().GetVersion(); got != want {
						t.Fatalf("got version %s, expected %s", got, want)
					}
				}
			}
		})
	}
}
