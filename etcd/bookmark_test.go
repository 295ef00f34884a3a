//go:build integration

package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/faultproxy"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

func ask(t testing.TB, w storage.Watch) {
	t.Helper()
	if err := w.(storage.Bookmarker).Bookmark(t.Context()); err != nil {
		t.Fatalf("Bookmark: %v", err)
	}
}

func wantBookmark(t testing.TB, ctx context.Context, w storage.Watch) {
	t.Helper()
	if ev, err := w.Next(ctx); err != nil || ev.GetBookmark() == nil {
		t.Fatalf("got %v, %v; want a bookmark", ev, err)
	}
}

// TestBookmarkOfAnIdlePrefix changes what is not the store's, so that nothing but progress tells how far its watch is. If it came
// only when the feed asks by itself, every 5 seconds, the time for all of it would not suffice.
func TestBookmarkOfAnIdlePrefix(t *testing.T) {
	t.Parallel()
	server := env.Etcd(t)
	b, neighbour := open(t, server.StoreURL(t)), open(t, server.StoreURL(t))
	w := fixture.WatchChanges(t, b)
	other := fixture.Write(t, neighbour, service("other"))
	ctx := fixture.Context(t)
	for range 50 {
		other = fixture.Write(t, neighbour, at(other, other.Version))
		ask(t, w)
		wantBookmark(t, ctx, w)
		resumed, err := b.WatchFrom(ctx, serviceType, tenancy, "", w.Cursor())
		if err != nil {
			t.Fatal(err)
		}
		ask(t, resumed)
		wantBookmark(t, ctx, resumed)
		resumed.Close()
	}
	wantNext(t, w, upserted(fixture.Write(t, b, service("mine"))))
}

// TestBookmarkDuringOutage asks while the cluster is out of reach, with writes on their way around the watch: the bookmark
// comes when the cluster is back, and after them.
func TestBookmarkDuringOutage(t *testing.T) {
	t.Parallel()
	server := env.Etcd(t)
	for name, away := range map[string]func(*faultproxy.Proxy){
		"refused": (*faultproxy.Proxy).Refuse,
		"stalled": (*faultproxy.Proxy).Stall,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := server.StoreURL(t)
			proxy := faultproxy.New(t, server.Endpoint)
			direct, b := open(t, url), open(t, through(url, server.Endpoint, proxy.Addr()))
			w := fixture.WatchChanges(t, b)
			for round := range 3 {
				away(proxy)
				var want []string
				for i := range 5 {
					want = append(want, upserted(fixture.Write(t, direct, service(fmt.Sprint("s", round, "-", i)))))
				}
				ask(t, w)
				soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				if ev, err := w.Next(soon); !errors.Is(err, context.DeadlineExceeded) {
					t.Fatalf("got %v, %v while the cluster is away", ev, err)
				}
				cancel()
				proxy.Resume()
				wantNext(t, w, want...)
				wantBookmark(t, fixture.Context(t), w)
			}
		})
	}
}

// TestBookmarksUnderCuts has several watches ask for what has just been acknowledged to their writers, while connections
// break all the time.
func TestBookmarksUnderCuts(t *testing.T) {
	t.Parallel()
	server := env.Etcd(t)
	url := server.StoreURL(t)
	proxy := faultproxy.New(t, server.Endpoint)
	direct, b := open(t, url), open(t, through(url, server.Endpoint, proxy.Addr()))
	const writers, rounds = 4, 30
	watches := make([]storage.Watch, writers)
	for i := range watches {
		watches[i] = fixture.WatchChanges(t, b)
	}
	stop := make(chan struct{})
	var cutting, asking sync.WaitGroup
	cutting.Go(func() {
		for tick := time.NewTicker(50 * time.Millisecond); ; {
			select {
			case <-tick.C:
				proxy.Cut()
			case <-stop:
				tick.Stop()
				return
			}
		}
	})
	for i, w := range watches {
		asking.Go(func() {
			for round := range rounds {
				res, err := direct.WriteCAS(fixture.Context(t), service(fmt.Sprintf("s%d-%d", i, round)))
				if err == nil {
					err = w.(storage.Bookmarker).Bookmark(t.Context())
				}
				seen := false
				for err == nil {
					var ev *resourcepb.WatchEvent
					if ev, err = w.Next(fixture.Context(t)); err != nil || ev.GetBookmark() != nil {
						break
					}
					seen = seen || what(ev) == upserted(res)
				}
				if err != nil || !seen {
					t.Errorf("watch %d, round %d: %v; has seen what was acknowledged: %v", i, round, err, seen)
					return
				}
			}
		})
	}
	asking.Wait()
	close(stop)
	cutting.Wait()
}

// TestMoreOfABatch writes many resources at once, so that some of them share a revision: those are one commit. Writes one after
// another are not.
func TestMoreOfABatch(t *testing.T) {
	t.Parallel()
	b := open(t, env.Etcd(t).StoreURL(t))
	w := fixture.WatchChanges(t, b)
	const n = 300
	together(n, func(i int) {
		if _, err := b.WriteCAS(fixture.Context(t), service(fmt.Sprint("s", i))); err != nil {
			t.Error(err)
		}
	})
	joined := 0
	for i := range n {
		ev, err := w.Next(fixture.Context(t))
		if err != nil {
			t.Fatal(err)
		}
		if i == n-1 && ev.GetMore() {
			t.Error("the last event says that more of its commit follows")
		}
		if ev.GetMore() {
			joined++
		}
	}
	if joined == 0 {
		t.Error("no two of the writes were sent together, which this test needs")
	}
	for i := range 3 {
		fixture.Write(t, b, service(fmt.Sprint("alone", i)))
		if ev, err := w.Next(fixture.Context(t)); err != nil || ev.GetMore() {
			t.Errorf("%v, %v: it is alone", ev, err)
		}
	}
}
