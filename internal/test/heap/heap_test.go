//go:build integration && soak

package heap

import (
	"context"
	"crypto/rand"
	"fmt"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashlar-dev/storage"
	_ "github.com/ashlar-dev/storage/dynamodb"
	_ "github.com/ashlar-dev/storage/etcd"
	_ "github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/internal/test/env"
	_ "github.com/ashlar-dev/storage/postgres"
	"github.com/ashlar-dev/storage/resourcepb"
	_ "github.com/ashlar-dev/storage/sqlite"
)

const (
	size    = 1<<20 - 1<<10 // of a payload: with the fields around it, a resource is nearly as large as allowed
	writers = 4
	timeout = time.Minute // for one call
)

// TestStuckWatches writes up to 200 MiB while watches are not read: in their snapshot, after it, and in history. The memory
// that the process keeps for them and for its feed is bounded in bytes. The test is not parallel, because it measures the heap
// of the process.
func TestStuckWatches(t *testing.T) {
	for _, c := range []struct {
		name   string
		url    func(t *testing.T) string
		writes int // of each writer
		most   int // the maximum growth of the heap
	}{
		{"SQLite", func(t *testing.T) string {
			return "sqlite:" + filepath.ToSlash(filepath.Join(t.TempDir(), "stuck.db"))
		}, 50, 80 << 20},
		{"Postgres", func(t *testing.T) string { return env.Postgres(t).StoreURL(t) }, 50, 80 << 20},
		// In a server of its own: it keeps all that was written.
		{"etcd", func(t *testing.T) string { return env.StartEtcd(t).StoreURL(t) }, 50, 80 << 20},
		// The emulator takes its time.
		{"DynamoDB", func(t *testing.T) string { return env.DynamoDB(t).StoreURL(t) }, 16, 100 << 20},
		// The history of 64 MiB is here too. Last, because it lives as long as the process.
		{"memory", func(*testing.T) string { return "mem://stuck" }, 50, 112 << 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			storeURL := c.url(t)
			before := heap()
			b, err := storage.Open(within(t), storeURL)
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			var stored [writers]*resourcepb.Resource
			for i := range stored {
				stored[i] = write(t, b, blob(i, ""))
			}
			inSnapshot, after := watch(t, b), watchToTheEnd(t, b)
			next(t, inSnapshot)
			page := list(t, b)
			rewrite(t, b, &stored, c.writes/2)
			cursor := watchToTheEnd(t, b).Cursor()
			rewrite(t, b, &stored, 2)
			inHistory, err := storageAs[storage.Resumer](t, b).WatchFrom(within(t), everything, anywhere, "", cursor)
			if err != nil {
				t.Fatal(err)
			}
			defer inHistory.Close()
			next(t, inHistory)
			rewrite(t, b, &stored, c.writes/2)

			// The feed has reached the end when a watch shows the last writes.
			last := watchToTheEnd(t, b)
			rewrite(t, b, &stored, 1)
			for n := 0; n < writers; {
				if res := next(t, last).GetUpsert().GetResource(); res.Version == version(&stored, res.Id.Name) {
					n++
				}
			}
			grown := heap() - before
			t.Logf("the heap grew by %d MiB", grown>>20)
			if grown > c.most {
				t.Errorf("the heap grew by %d MiB, expected %d MiB at most", grown>>20, c.most>>20)
			}
			runtime.KeepAlive([]any{page, inSnapshot, after})
		})
	}
}

var (
	everything = storage.UnversionedType{Group: storage.Wildcard, Kind: storage.Wildcard}
	anywhere   = &resourcepb.Tenancy{Partition: storage.Wildcard, Namespace: storage.Wildcard}
)

// blob is a resource whose payload nothing can compress.
func blob(i int, version string) *resourcepb.Resource {
	data := make([]byte, size)
	_, _ = rand.Read(data) // never fails
	return &resourcepb.Resource{
		Id: &resourcepb.ID{
			Uid: "uid", Name: fmt.Sprint("blob-", i), Type: &resourcepb.Type{Group: "demo", GroupVersion: "v1", Kind: "Blob"},
			Tenancy: &resourcepb.Tenancy{Partition: "p", Namespace: "n"},
		},
		Version: version,
		Data:    &anypb.Any{TypeUrl: "example.com/Blob", Value: data},
	}
}

// version is the version of a writer's last write.
func version(stored *[writers]*resourcepb.Resource, name string) string {
	for _, res := range stored {
		if res.Id.Name == name {
			return res.Version
		}
	}
	return ""
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	return ctx
}

// write keeps nothing of the payload.
func write(t *testing.T, b storage.Backend, res *resourcepb.Resource) *resourcepb.Resource {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	stored, err := b.WriteCAS(ctx, res)
	if err != nil {
		t.Error(err)
		return res
	}
	return &resourcepb.Resource{Id: stored.Id, Version: stored.Version}
}

// rewrite has each resource written by a writer of its own, again and again.
func rewrite(t *testing.T, b storage.Backend, stored *[writers]*resourcepb.Resource, times int) {
	t.Helper()
	var all sync.WaitGroup
	for i := range stored {
		all.Go(func() {
			for range times {
				if t.Failed() {
					return
				}
				stored[i] = write(t, b, blob(i, stored[i].Version))
			}
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

func watch(t *testing.T, b storage.Backend) storage.Watch {
	t.Helper()
	w, err := b.WatchList(within(t), everything, anywhere, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

func watchToTheEnd(t *testing.T, b storage.Backend) storage.Watch {
	t.Helper()
	w := watch(t, b)
	for next(t, w).GetEndOfSnapshot() == nil {
		continue
	}
	return w
}

func next(t *testing.T, w storage.Watch) *resourcepb.WatchEvent {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	event, err := w.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return event
}

// list begins a listing in pages and does not continue it.
func list(t *testing.T, b storage.Backend) string {
	t.Helper()
	page, err := storageAs[storage.Pager](t, b).ListPage(within(t), everything, anywhere, "", storage.ListOptions{Limit: 1})
	if err != nil || page.Continue == "" {
		t.Fatalf("a page that continues with %q, %v", page.Continue, err)
	}
	return page.Continue
}

func storageAs[T any](t *testing.T, b storage.Backend) T {
	t.Helper()
	as, ok := storage.As[T](b)
	if !ok {
		t.Fatalf("%T is no %T", b, *new(T))
	}
	return as
}
