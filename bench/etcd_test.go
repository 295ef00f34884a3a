//go:build integration

package bench

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ashlar-dev/storage"
	_ "github.com/ashlar-dev/storage/etcd"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/internal/test/env"
)

// BenchmarkEtcd compares with one transaction per key by clientv3 on the same server, first without watches, then with a watch on
// each side.
func BenchmarkEtcd(b *testing.B) { once(b, func() { etcd(b) }) }

func etcd(b *testing.B) {
	server := env.Etcd(b)
	callers := []int{1, 16, 64, 256}
	backend := open(b, server.StoreURL(b))
	h := fill(b, backend, "etcd", maxCallers(), 500)
	raw := fillEtcd(b, server, maxCallers(), storedSize(b, h))
	compare(b, "etcd", "write", callers, side{"clientv3", raw.write}, side{"ashlar", h.write})
	compare(b, "etcd", "read", callers, side{"clientv3", raw.read}, side{"ashlar", h.read})

	watched := open(b, server.StoreURL(b))
	follow(b, watched)
	h = fill(b, watched, "etcd", maxCallers(), 500)
	raw = fillEtcd(b, server, maxCallers(), len(raw.data))
	raw.follow(b)
	compare(b, "etcd", "write-watched", callers, side{"clientv3", raw.write}, side{"ashlar", h.write})

	var theirs, ours []time.Duration
	url, client, key := server.StoreURL(b), server.Client(b), server.Prefix(b)+"/event"
	one := open(b, url)
	for round := range repetitions() {
		theirs = append(theirs, rawEvents(b, client, key, raw.data, scaled(100))...)
		ours = append(ours, untilEvent(b, one, fmt.Sprint("event", round), scaled(100))...)
	}
	fmt.Printf("latency etcd/event/1 %.2f\n", float64(percentile(ours, 50))/float64(percentile(theirs, 50)))
	many := open(b, url)
	followNames(b, many, scaled(1000), "unrelated")
	var oneWatch, manyWatches []time.Duration
	for round := range repetitions() {
		oneWatch = append(oneWatch, untilEvent(b, one, fmt.Sprint("one-watch", round), scaled(100))...)
		manyWatches = append(manyWatches, untilEvent(b, many, fmt.Sprint("many-watches", round), scaled(100))...)
	}
	fmt.Printf("latency etcd/event-1000-watches/1 %.2f\n", float64(percentile(manyWatches, 50))/float64(percentile(oneWatch, 50)))
}

// untilEvent returns, for each of n writes, the time from its start to its event.
func untilEvent(b *testing.B, backend storage.Backend, name string, n int) []time.Duration {
	b.Helper()
	events, writes := eventLatency(b, backend, backend, name, n)
	for i := range events {
		events[i] += writes[i]
	}
	return events
}

// storedSize returns the size of a resource of h in etcd.
func storedSize(b *testing.B, h *resourceSet) int {
	b.Helper()
	return 17 + codec.Size(h.resources[0][0]) // a byte for the format and 16 for the token precede the resource
}

// rawEtcd is a set of keys that callers read, write and track by clientv3.
type rawEtcd struct {
	client    *clientv3.Client
	prefix    string
	data      string
	revisions [][keysPerCaller]int64 // by caller
}

func fillEtcd(b *testing.B, server *env.EtcdServer, callers, size int) *rawEtcd {
	b.Helper()
	r := &rawEtcd{client: server.Client(b), prefix: server.Prefix(b) + "/raw/default/default/", data: string(payload(size)),
		revisions: make([][keysPerCaller]int64, callers)}
	var filling sync.WaitGroup
	for c := range r.revisions {
		filling.Go(func() {
			for k := range r.revisions[c] {
				r.revisions[c][k] = must(r.client.Put(context.Background(), r.key(c, k), r.data)).Header.Revision
			}
		})
	}
	filling.Wait()
	return r
}

func (r *rawEtcd) key(caller, i int) string {
	return fmt.Sprintf("%s%d/%d", r.prefix, caller, i%keysPerCaller)
}

func (r *rawEtcd) write(caller, i int) error {
	at := &r.revisions[caller][i%keysPerCaller]
	resp, err := r.client.Txn(context.Background()).
		If(clientv3.Compare(clientv3.ModRevision(r.key(caller, i)), "=", *at)).
		Then(clientv3.OpPut(r.key(caller, i), r.data)).Commit()
	switch {
	case err != nil:
		return err
	case !resp.Succeeded:
		return fmt.Errorf("clientv3: the mod revision of %s is not %d", r.key(caller, i), *at)
	}
	*at = resp.Header.Revision
	return nil
}

func (r *rawEtcd) read(caller, i int) error {
	_, err := r.client.Get(context.Background(), r.key(caller, i))
	return err
}

// follow watches all keys, and reads the events until the benchmark ends. It requests previous values, which are necessary to know
// the deleted state.
func (r *rawEtcd) follow(b *testing.B) {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	watch := r.client.Watch(ctx, r.prefix, clientv3.WithPrefix(), clientv3.WithPrevKV())
	var running sync.WaitGroup
	running.Go(func() {
		for range watch {
			continue
		}
	})
	b.Cleanup(func() { cancel(); running.Wait() })
}

// rawEvents returns, for each of n puts, the time from its start to its event in a watch of the same client.
func rawEvents(b *testing.B, client *clientv3.Client, key, data string, n int) (latencies []time.Duration) {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	watch := client.Watch(ctx, key, clientv3.WithCreatedNotify())
	<-watch
	for range n {
		began := time.Now()
		must(client.Put(ctx, key, data))
		<-watch
		latencies = append(latencies, time.Since(began))
	}
	return latencies
}
