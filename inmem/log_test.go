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

// heap returns the bytes in use after a collection.
func heap() int {
	runtime.GC()
	runtime.GC() // what finalizers and pools held on to
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// nextWithin is Next, within the time that an event that is there may take.
func nextWithin(t *testing.T, w storage.Watch) (*resourcepb.WatchEvent, error) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return w.Next(ctx)
}

// rewrite writes the resource again and again.
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

// A watch that nobody reads from, in its snapshot or after it, costs what the history may take, whatever is written: not a
// number of changes of any size. Not parallel: it looks at the heap of the process.
func TestStalledWatchesAreBounded(t *testing.T) {
	for _, c := range []struct {
		size, writes, most int
		options            *inmem.Options
	}{
		// The smallest first: what one case leaves to the garbage collector is not yet gone when the next one begins.
		{4 << 10, 50_000, 24 << 20, &inmem.Options{HistoryBytes: 8 << 20}},
		{16, 300_000, 96 << 20, nil}, // of small ones what surrounds the bytes weighs more than they do
		{4 << 10, 200_000, 128 << 20, nil},
		{1 << 19, 2_000, 128 << 20, nil},
	} {
		t.Run(fmt.Sprintf("%d writes of %d bytes", c.writes, c.size), func(t *testing.T) {
			b := inmem.New(c.options)
			defer b.Close()
			res := rewrite(t, b, newArtist("a", c.size), 1)
			stuck, err := b.WatchList(t.Context(), everything, anywhere(), "")
			if err != nil {
				t.Fatal(err)
			}
			inSnapshot, err := b.WatchList(t.Context(), everything, anywhere(), "")
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if _, err := stuck.Next(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			before := heap()
			rewrite(t, b, res, c.writes)
			if grown := heap() - before; grown > c.most {
				t.Errorf("the heap grew by %d MiB, expected %d MiB at most", grown>>20, c.most>>20)
			} else {
				t.Logf("the heap grew by %d MiB", grown>>20)
			}
			for what, w := range map[string]storage.Watch{"after its snapshot": stuck, "in its snapshot": inSnapshot} {
				for err = nil; err == nil; {
					_, err = nextWithin(t, w)
				}
				if !errors.Is(err, storage.ErrWatchClosed) || !errors.Is(err, storage.ErrCompacted) {
					t.Errorf("the watch that stood still %s: %v, expected ErrWatchClosed and ErrCompacted", what, err)
				}
			}
		})
	}
}

// However small the history, a watch that somebody reads from sees every change: what the feed has not taken over yet is not
// dropped, and writers wait for it rather than pile up changes.
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
			// Fewer than the feed's log holds, so that the history is not needed again.
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
