//go:build integration

package etcd_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/faultproxy"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// compact compacts a server's history up to the current revision. It ignores ErrCompacted.
func compact(t testing.TB, c *clientv3.Client) {
	t.Helper()
	resp, err := c.Get(fixture.Context(t), "x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Compact(fixture.Context(t), resp.Header.Revision, clientv3.WithCompactPhysical()); err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		t.Fatal(err)
	}
}

func TestDisconnectedWatchContinues(t *testing.T) {
	t.Parallel()
	server := env.StartEtcd(t)
	url := server.StoreURL(t)
	proxy := faultproxy.New(t, server.Endpoint)
	writer, watcher := open(t, url), open(t, through(url, server.Endpoint, proxy.Addr()))

	w := fixture.WatchChanges(t, watcher)
	first := fixture.Write(t, writer, service("a"))
	wantNext(t, w, upserted(first))
	proxy.Refuse()
	// The watch has seen all compacted revisions.
	compact(t, server.Client(t))
	second := fixture.Write(t, writer, at(first, first.Version))
	fixture.Remove(t, writer, second)
	third := fixture.Write(t, writer, service("b"))
	proxy.Resume()
	wantNext(t, w, upserted(second), deleted(second), upserted(third))
}

func TestCompactionWhileDisconnected(t *testing.T) {
	t.Parallel()
	server := env.StartEtcd(t)
	url := server.StoreURL(t)
	proxy := faultproxy.New(t, server.Endpoint)
	writer, watcher := open(t, url), open(t, through(url, server.Endpoint, proxy.Addr()))

	w := fixture.WatchChanges(t, watcher)
	first := fixture.Write(t, writer, service("a"))
	wantNext(t, w, upserted(first))
	cursor := w.Cursor()
	proxy.Refuse()
	fixture.Remove(t, writer, first)
	fixture.Write(t, writer, service("b"))
	compact(t, server.Client(t))
	proxy.Resume()
	wantEnd(t, w)

	// The compacted cursor fails; a new watch works.
	old, err := watcher.WatchFrom(fixture.Context(t), serviceType, tenancy, "", cursor)
	if err == nil {
		defer old.Close()
		_, err = old.Next(fixture.Context(t))
	}
	if !errors.Is(err, storage.ErrCompacted) {
		t.Errorf("watching from a compacted cursor: %v, want ErrCompacted", err)
	}
	again := fixture.WatchChanges(t, watcher)
	wantNext(t, again, upserted(fixture.Write(t, writer, service("c"))))
}

func TestCompactedContinueToken(t *testing.T) {
	t.Parallel()
	server := env.StartEtcd(t)
	b := open(t, server.StoreURL(t))
	for i := range 5 {
		fixture.Write(t, b, service(fmt.Sprint("s", i)))
	}
	page, err := b.ListPage(fixture.Context(t), serviceType, tenancy, "", storage.ListOptions{Limit: 2, Consistency: storage.StrongConsistency})
	if err != nil || page.Continue == "" {
		t.Fatalf("first page: %v, continue %q", err, page.Continue)
	}
	fixture.Write(t, b, service("later"))
	compact(t, server.Client(t))
	_, err = b.ListPage(fixture.Context(t), serviceType, tenancy, "", storage.ListOptions{Limit: 2, Continue: page.Continue})
	if !errors.Is(err, storage.ErrCompacted) {
		t.Errorf("second page: %v, want ErrCompacted", err)
	}
}

// The cluster is compacted at the very revisions of deletions. A live watch and a resumed watch each get all events, or end.
func TestCompactionRacingDeletes(t *testing.T) {
	t.Parallel()
	server := env.StartEtcd(t)
	url := server.StoreURL(t)
	writer, watcher := open(t, url), open(t, url)
	client := server.Client(t)

	live := fixture.WatchChanges(t, watcher)
	for i := range 60 {
		start := live.Cursor()
		res := fixture.Write(t, writer, service(fmt.Sprint("s", i)))
		var both sync.WaitGroup
		both.Go(func() {
			if err := writer.DeleteCAS(fixture.Context(t), res.Id, res.Version); err != nil {
				t.Errorf("delete: %v", err)
			}
		})
		both.Go(func() { compact(t, client) })
		both.Wait()
		compact(t, client)
		live = wantNextOrEnd(t, watcher, live, upserted(res), deleted(res))
		resumed, err := watcher.WatchFrom(fixture.Context(t), serviceType, tenancy, "", start)
		if err != nil {
			if !errors.Is(err, storage.ErrCompacted) {
				t.Fatalf("watch from: %v", err)
			}
			continue
		}
		wantNextOrEnd(t, watcher, resumed, upserted(res), deleted(res)).Close()
	}
}

// wantNextOrEnd requires these events of a watch, or that the watch ends because history is compacted. Then it returns a new watch.
func wantNextOrEnd(t *testing.T, b storage.Backend, w storage.Watch, want ...string) storage.Watch {
	t.Helper()
	for _, one := range want {
		ev, err := w.Next(fixture.Context(t))
		if errors.Is(err, storage.ErrWatchClosed) && errors.Is(err, storage.ErrCompacted) {
			w.Close()
			return fixture.WatchChanges(t, b)
		}
		if err != nil {
			t.Fatalf("next: %v", err)
		}
		if got := eventText(ev); got != one {
			t.Fatalf("got %q, want %q", got, one)
		}
	}
	return w
}

func TestDefragmentation(t *testing.T) {
	t.Parallel()
	server := env.StartEtcd(t)
	b := open(t, server.StoreURL(t))
	client := server.Client(t)
	w := fixture.WatchChanges(t, b)

	done := make(chan struct{})
	var want []string
	var defragmented atomic.Bool
	go func() {
		defer close(done)
		res := service("a")
		for n := 0; n < 20 || !defragmented.Load(); n++ {
			out, err := b.WriteCAS(fixture.Context(t), res)
			if err != nil {
				t.Errorf("write: %v", err)
				return
			}
			want = append(want, upserted(out))
			res = at(res, out.Version)
		}
	}()
	for range 3 {
		if _, err := client.Defragment(fixture.Context(t), server.Endpoint); err != nil {
			t.Errorf("defragment: %v", err)
		}
	}
	defragmented.Store(true)
	<-done
	wantNext(t, w, want...)
}
