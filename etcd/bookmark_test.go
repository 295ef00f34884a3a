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

// requestBookmark requests a bookmark on the watch.
func requestBookmark(t testing.TB, w storage.Watch) {
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

// Only keys outside the store change, so only progress responses show the position of its watch. The feed requests progress by itself
// every 5 seconds; with those requests alone the test would time out.
func TestBookmarkOfAnIdlePrefix(t *testing.T) {
	t.Parallel()
	server := env.Etcd(t)
	b, neighbour := open(t, server.StoreURL(t)), open(t, server.StoreURL(t))
	w := fixture.WatchChanges(t, b)
	other := fixture.Write(t, neighbour, service("other"))
	ctx := fixture.Context(t)
	for range 50 {
		other = fixture.Write(t, neighbour, at(other, other.Version))
		requestBookmark(t, w)
		wantBookmark(t, ctx, w)
		resumed, err := b.WatchFrom(ctx, serviceType, tenancy, "", w.Cursor())
		if err != nil {
			t.Fatal(err)
		}
		requestBookmark(t, resumed)
		wantBookmark(t, ctx, resumed)
		resumed.Close()
	}
	wantNext(t, w, upserted(fixture.Write(t, b, service("mine"))))
}

// A bookmark requested during an outage arrives after the outage, and after the writes that another handle made meanwhile.
func TestBookmarkDuringOutage(t *testing.T) {
	t.Parallel()
	server := env.Etcd(t)
	for name, startOutage := range map[string]func(*faultproxy.Proxy){
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
				startOutage(proxy)
				var want []string
				for i := range 5 {
					want = append(want, upserted(fixture.Write(t, direct, service(fmt.Sprint("s", round, "-", i)))))
				}
				requestBookmark(t, w)
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				if ev, err := w.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
					t.Fatalf("got %v, %v during the outage", ev, err)
				}
				cancel()
				proxy.Resume()
				wantNext(t, w, want...)
				wantBookmark(t, fixture.Context(t), w)
			}
		})
	}
}

// Each of several watches requests a bookmark after an acknowledged write, while connections break. The write must precede the bookmark.
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
	var cutter, readers sync.WaitGroup
	cutter.Go(func() {
		// The connections live longer after each cut, so that a slow machine makes progress.
		for lifetime := 50 * time.Millisecond; ; lifetime += lifetime / 50 {
			select {
			case <-time.After(lifetime):
				proxy.Cut()
			case <-stop:
				return
			}
		}
	})
	for i, w := range watches {
		readers.Go(func() {
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
					seen = seen || eventText(ev) == upserted(res)
				}
				if err != nil || !seen {
					t.Errorf("watch %d, round %d: %v; has the acknowledged write: %v", i, round, err, seen)
					return
				}
			}
		})
	}
	readers.Wait()
	close(stop)
	cutter.Wait()
}

// Of many concurrent writes some share a revision, because they are one commit. Sequential writes are separate commits.
func TestBatchIsOneCommit(t *testing.T) {
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
		t.Error("no two writes shared a batch; the test needs some that do")
	}
	for i := range 3 {
		fixture.Write(t, b, service(fmt.Sprint("alone", i)))
		if ev, err := w.Next(fixture.Context(t)); err != nil || ev.GetMore() {
			t.Errorf("%v, %v: want a commit of one write", ev, err)
		}
	}
}
