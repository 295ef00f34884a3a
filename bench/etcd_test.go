//go:build integration

package bench

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	_ "github.com/ashlar-dev/storage/etcd"
	"github.com/ashlar-dev/storage/internal/testenv"
)

// BenchmarkEtcd compares with one transaction per key by clientv3 on the same server.
func BenchmarkEtcd(b *testing.B) { once(b, func() { etcd(b) }) }

func etcd(b *testing.B) {
	ctx := context.Background()
	server := testenv.Etcd(b)
	client := server.Client(b)
	prefix := server.Prefix(b)
	url := server.StoreURL(b)
	backend := open(b, url)
	follow(b, backend)
	h := fill(b, backend, "etcd", 256, 500)

	data := string(payload(600)) // what a resource around 500 bytes takes
	type cell struct{ revision int64 }
	cells := make([][keysPerCaller]cell, 256)
	key := func(caller, i int) string { return fmt.Sprintf("%s/raw/%d/%d", prefix, caller, i%keysPerCaller) }
	var filling sync.WaitGroup
	for c := range cells {
		filling.Go(func() {
			for k := range cells[c] {
				cells[c][k].revision = must(client.Put(ctx, key(c, k), data)).Header.Revision
			}
		})
	}
	filling.Wait()
	callers := []int{1, 16, 64, 256}
	compare(b, "etcd", "write", callers, side{"clientv3", func(caller, i int) error {
		at := &cells[caller][i%keysPerCaller]
		r, err := client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key(caller, i)), "=", at.revision)).
			Then(clientv3.OpPut(key(caller, i), data)).Commit()
		if err == nil && !r.Succeeded {
			err = fmt.Errorf("the raw compare failed")
		}
		if err == nil {
			at.revision = r.Header.Revision
		}
		return err
	}}, side{"ashlar", h.write})
	compare(b, "etcd", "read", callers, side{"clientv3", func(caller, i int) error {
		_, err := client.Get(ctx, key(caller, i))
		return err
	}}, side{"ashlar", h.read})

	raw := rawEvents(b, client, prefix+"/event")
	events, writes := eventLatency(b, backend, open(b, url), "event", 500)
	total := make([]time.Duration, len(events))
	for i := range events {
		total[i] = events[i] + writes[i]
	}
	fmt.Printf("latency etcd/event/1 %.2f\n", float64(percentile(total, 50))/float64(percentile(raw, 50)))
	followNames(b, backend, 1000, "somebody else's")
	events, writes = eventLatency(b, backend, backend, "event-many", 200)
	fmt.Printf("latency etcd/event-1000-watches/1 %.2f\n", float64(percentile(events, 50)+percentile(writes, 50))/float64(percentile(total, 50)))
}

// rawEvents tells how long a put takes from its beginning to its event at a watch of the same client library.
func rawEvents(b *testing.B, client *clientv3.Client, key string) (latencies []time.Duration) {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	watch := client.Watch(ctx, key, clientv3.WithCreatedNotify())
	<-watch
	for range 500 {
		began := time.Now()
		must(client.Put(ctx, key, string(payload(600))))
		<-watch
		latencies = append(latencies, time.Since(began))
	}
	return latencies
}
