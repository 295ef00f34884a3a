//go:build integration

package etcd_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/faultproxy"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// All connections break repeatedly under load. The cluster is always available, so no outcome may remain unknown, and no operation may be
// applied twice or reported wrongly.
func TestCutsUnderLoad(t *testing.T) {
	t.Parallel()
	server := env.Etcd(t)
	proxy := faultproxy.New(t, server.Endpoint)
	b := open(t, through(server.StoreURL(t), server.Endpoint, proxy.Addr()))
	w := fixture.WatchChanges(t, b)
	l := newLoad(t, b, 8, 3)
	for i := range 40 {
		l.progress(t, 20)
		switch i % 4 {
		case 0:
			proxy.Cut()
		case 1:
			proxy.CutAnswer([]byte(loadKey(i % 3)))
		case 2:
			proxy.CutRequest([]byte(loadKey(i % 3)))
		case 3:
			proxy.Refuse()
			proxy.Resume()
		}
	}
	l.finish(t, b, w)
	if n := l.unknown.Load(); n != 0 {
		t.Errorf("%d outcomes remained unknown although the server was always available", n)
	}
}

// The cluster refuses connections, or does not answer, for longer than the URL parameter outage allows.
func TestOutageEndsWatches(t *testing.T) {
	t.Parallel()
	server := env.Etcd(t)
	for name, startOutage := range map[string]func(*faultproxy.Proxy){
		"refused": (*faultproxy.Proxy).Refuse,
		"stalled": (*faultproxy.Proxy).Stall,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := faultproxy.New(t, server.Endpoint)
			prefix := server.Prefix(t)
			b := open(t, through(server.StoreURLIn(t, prefix, "outage=3s"), server.Endpoint, proxy.Addr()))
			w := fixture.WatchChanges(t, b)
			startOutage(proxy)
			ev, err := w.Next(fixture.Context(t))
			if !errors.Is(err, storage.ErrWatchClosed) || errors.Is(err, storage.ErrCompacted) {
				t.Errorf("next: %v, %v; want ErrWatchClosed", ev, err)
			}
			proxy.Resume()
			// The handle itself still works, and handles with a longer outage keep their watches.
			patient := open(t, through(server.StoreURLIn(t, prefix), server.Endpoint, proxy.Addr()))
			again := fixture.WatchChanges(t, patient)
			wantNext(t, again, upserted(fixture.Write(t, b, service("after"))))
		})
	}
}

// A connection stalls for some time and then continues.
func TestStalledConnection(t *testing.T) {
	t.Parallel()
	server := env.Etcd(t)
	url := server.StoreURL(t)
	proxy := faultproxy.New(t, server.Endpoint)
	direct, b := open(t, url), open(t, through(url, server.Endpoint, proxy.Addr()))
	w := fixture.WatchChanges(t, b)
	proxy.Stall()
	var want []string
	for i := range 10 {
		want = append(want, upserted(fixture.Write(t, direct, service(fmt.Sprint("s", i)))))
	}
	proxy.Resume()
	wantNext(t, w, want...)
}

// The resources of a watch do not change, while the cluster changes and is compacted. The cursor of the watch must remain valid.
func TestIdleCursor(t *testing.T) {
	t.Parallel()
	server := env.StartEtcd(t)
	url := server.StoreURL(t, "outage=20s") // requests progress every five seconds
	b := open(t, url)
	w := fixture.WatchChanges(t, b)
	start := w.Cursor()
	client := server.Client(t)
	if _, err := client.Put(fixture.Context(t), "elsewhere", "x"); err != nil {
		t.Fatal(err)
	}
	next := make(chan error, 1)
	go func() {
		_, err := w.Next(fixture.Context(t))
		next <- err
	}()
	fixture.Eventually(t, "the cursor moves", func() bool { return w.Cursor() != start })
	compact(t, client)
	cursor := w.Cursor()
	res := fixture.Write(t, b, service("a"))
	if err := <-next; err != nil {
		t.Fatal(err)
	}
	resumed, err := b.WatchFrom(fixture.Context(t), serviceType, tenancy, "", cursor)
	if err != nil {
		t.Fatal(err)
	}
	defer resumed.Close()
	wantNext(t, resumed, upserted(res))
}
