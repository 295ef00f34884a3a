//go:build integration

package etcd_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/faultproxy"
	"github.com/ashlar-dev/storage/internal/storetest"
	"github.com/ashlar-dev/storage/internal/testenv"
)

// compact compacts a server's history up to now, if it is not already.
func compact(t testing.TB, c *clientv3.Client) {
	t.Helper()
	resp, err := c.Get(storetest.Context(t), "x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Compact(storetest.Context(t), resp.Header.Revision, clientv3.WithCompactPhysical()); err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		t.Fatal(err)
	}
}

func TestDisconnectedWatchGoesOn(t *testing.T) {
	t.Parallel()
	server := testenv.StartEtcd(t)
	url := server.StoreURL(t)
	proxy := faultproxy.New(t, server.Endpoint)
	writer, watcher := open(t, url), open(t, through(url, server.Endpoint, proxy.Addr()))

	w := storetest.WatchChanges(t, watcher)
	first := storetest.Write(t, writer, service("a"))
	wantNext(t, w, upserted(first))
	proxy.Refuse()
	// What is compacted here, the watch has seen.
	compact(t, server.Client(t))
	second := storetest.Write(t, writer, at(first, first.Version))
	storetest.Remove(t, writer, second)
	third := storetest.Write(t, writer, service("b"))
	proxy.Resume()
	wantNext(t, w, upserted(second), deleted(second), upserted(third))
}

func TestCompactionWhileDisconnected(t *testing.T) {
	t.Parallel()
	server := testenv.StartEtcd(t)
	url := server.StoreURL(t)
	proxy := faultproxy.New(t, server.Endpoint)
	writer, watcher := open(t, url), open(t, through(url, server.Endpoint, proxy.Addr()))

	w := storetest.WatchChanges(t, watcher)
	first := storetest.Write(t, writer, service("a"))
	wantNext(t, w, upserted(first))
	cursor := w.Cursor()
	proxy.Refuse()
	storetest.Remove(t, writer, first)
	storetest.Write(t, writer, service("b"))
	compact(t, server.Client(t))
	proxy.Resume()
	wantEnd(t, w)

	// Starting again works, from a snapshot only.
	old, err := watcher.WatchFrom(storetest.Context(t), serviceType, tenancy, "", cursor)
	if err == nil {
		defer old.Close()
		_, err = old.Next(storetest.Context(t))
	}
	if !errors.Is(err, storage.ErrCompacted) {
		t.Errorf("watching from a compacted cursor: %v, want ErrCompacted", err)
	}
	again := storetest.WatchChanges(t, watcher)
	wantNext(t, again, upserted(storetest.Write(t, writer, service("c"))))
}

func TestCompactedContinueToken(t *testing.T) {
	t.Parallel()
	server := testenv.StartEtcd(t)
	b := open(t, server.StoreURL(t))
	for i := range 5 {
		storetest.Write(t, b, service(fmt.Sprint("s", i)))
	}
	page, err := b.ListPage(storetest.Context(t), serviceType, tenancy, "", storage.ListOptions{Limit: 2, Consistency: storage.StrongConsistency})
	if err != nil || page.Continue == "" {
		t.Fatalf("first page: %v, continue %q", err, page.Continue)
	}
	storetest.Write(t, b, service("later"))
	compact(t, server.Client(t))
	_, err = b.ListPage(storetest.Context(t), serviceType, tenancy, "", storage.ListOptions{Limit: 2, Continue: page.Continue})
	if !errors.Is(err, storage.ErrCompacted) {
		t.Errorf("second page: %v, want ErrCompacted", err)
	}
}

// TestCompactionRacingDeletes compacts at the very revisions of deletions, while watches that are live, and watches that are
// just being opened, look on. Each sees everything, or ends.
func TestCompactionRacingDeletes(t *testing.T) {
	t.Parallel()
	server := testenv.StartEtcd(t)
	url := server.StoreURL(t)
	writer, watcher := open(t, url), open(t, url)
	client := server.Client(t)

	live := storetest.WatchChanges(t, watcher)
	for i := range 60 {
		start := live.Cursor()
		res := storetest.Write(t, writer, service(fmt.Sprint("s", i)))
		var both sync.WaitGroup
		both.Go(func() {
			if err := writer.DeleteCAS(storetest.Context(t), res.Id, res.Version); err != nil {
				t.Errorf("delete: %v", err)
			}
		})
		both.Go(func() { compact(t, client) })
		both.Wait()
		compact(t, client)
		live = sees(t, watcher, live, upserted(res), deleted(res))
		resumed, err := watcher.WatchFrom(storetest.Context(t), serviceType, tenancy, "", start)
		if err != nil {
			if !errors.Is(err, storage.ErrCompacted) {
				t.Fatalf("watch from: %v", err)
			}
			continue
		}
		sees(t, watcher, resumed, upserted(res), deleted(res)).Close()
	}
}

// sees demands that a watch gives these events, or ends for want of history: then it returns a new one.
func sees(t *testing.T, b storage.Backend, w storage.Watch, want ...string) storage.Watch {
	t.Helper()
	for _, one := range want {
		ev, err := w.Next(storetest.Context(t))
		if errors.Is(err, storage.ErrWatchClosed) && errors.Is(err, storage.ErrCompacted) {
			w.Close()
			return storetest.WatchChanges(t, b)
		}
		if err != nil {
			t.Fatalf("next: %v", err)
		}
		if got := what(ev); got != one {
			t.Fatalf("got %q, want %q", got, one)
		}
	}
	return w
}

func TestDefragmentation(t *testing.T) {
	t.Parallel()
	server := testenv.StartEtcd(t)
	b := open(t, server.StoreURL(t))
	client := server.Client(t)
	w := storetest.WatchChanges(t, b)

	done := make(chan struct{})
	var want []string
	go func() {
		defer close(done)
		res := service("a")
		for range 200 {
			out, err := b.WriteCAS(storetest.Context(t), res)
			if err != nil {
				t.Errorf("write: %v", err)
				return
			}
			want = append(want, upserted(out))
			res = at(res, out.Version)
		}
	}()
	for range 3 {
		if _, err := client.Defragment(storetest.Context(t), server.Endpoint); err != nil {
			t.Errorf("defragment: %v", err)
		}
	}
	<-done
	wantNext(t, w, want...)
}
