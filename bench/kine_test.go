//go:build integration

package bench

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/grpclog"
)

// kineComparisons are the comparisons and their numbers of callers.
var kineComparisons = []string{
	"cas/1", "cas/16", "cas/64", "list-10000/1", "list-page-of-500/1", "event-same-server/1", "event-other-server/1",
}

// BenchmarkKine compares `ashlar serve etcd` with kine, over gRPC, each in a process of its own, with the requests of
// kube-apiserver.
func BenchmarkKine(b *testing.B) {
	// A library of another comparison logs all gRPC calls.
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, os.Stderr))
	once(b, func() {
		for _, database := range []struct {
			name    string
			servers func(b *testing.B) (kine, ours apiServer)
		}{{"sqlite", sqliteServers}, {"sqlite-synced", syncedServers}, {"postgres", postgresServers}} {
			if slices.ContainsFunc(kineComparisons, func(what string) bool { return selected("kine-" + database.name + "/" + what) }) {
				b.Run(database.name, func(b *testing.B) { kine(b, "kine-"+database.name, database.servers) })
			}
		}
	})
}

func kine(b *testing.B, name string, servers func(b *testing.B) (kine, ours apiServer)) {
	theirServer, ourServer := servers(b)
	their, our := newRegistry(b, theirServer), newRegistry(b, ourServer)
	compare(b, name, "cas", []int{1, 16, 64}, side{"kine", their.update}, side{"ashlar", our.update})
	compare(b, name, "list-10000", []int{1}, side{"kine", their.list}, side{"ashlar", our.list})
	compare(b, name, "list-page-of-500", []int{1}, side{"kine", their.page}, side{"ashlar", our.page})
	kineEvents(b, name, "event-same-server", their, our, their.client, our.client)
	if name == "kine-postgres" && selected(name+"/event-other-server/1") { // as with several kube-apiservers, each with a server of its own
		kineEvents(b, name, "event-other-server", their, our, theirServer.start(b), ourServer.start(b))
	}
}

// kineEvents compares the time from the start of a write until a watcher has its event.
func kineEvents(b *testing.B, name, what string, their, our *registry, theirWatcher, ourWatcher *clientv3.Client) {
	b.Helper()
	if !selected(name + "/" + what + "/1") {
		return
	}
	theirs, ours := their.events(b, theirWatcher), our.events(b, ourWatcher)
	for side, latencies := range map[string][]time.Duration{"kine": theirs, "ashlar": ours} {
		fmt.Printf("Benchmark/%s/%s/1/%s\t%8d\t%12d p50-ns\t%12d p99-ns\t%12d max-ns\n", name, what, side, len(latencies),
			percentile(latencies, 50), percentile(latencies, 99), percentile(latencies, 100))
	}
	fmt.Printf("latency %s/%s/1 %.4f\n", name, what, float64(percentile(ours, 50))/float64(percentile(theirs, 50)))
}

const (
	registryPrefix  = "/registry/pods/default/"
	registryUpdated = "/registry/leases/default/"
	// registryKeys is the number of keys that each caller updates.
	registryKeys = 16
)

// registry is a server of etcd's API with objects as kube-apiserver stores them.
type registry struct {
	client    *clientv3.Client
	listed    int
	value     string
	revisions [][]int64 // by caller and key, of the updated objects
}

func newRegistry(b *testing.B, f apiServer) *registry {
	b.Helper()
	r := &registry{client: f.start(b), listed: scaled(10_000), value: strings.Repeat("v", 500)}
	r.revisions = make([][]int64, 64)
	for caller := range r.revisions {
		r.revisions[caller] = make([]int64, registryKeys)
	}
	var next atomic.Int64
	errs := make(chan error, 16)
	for range cap(errs) {
		go func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= r.listed {
					errs <- nil
					return
				}
				if _, err := r.swap(fmt.Sprintf("%spod-%06d", registryPrefix, i), 0); err != nil {
					errs <- err
					return
				}
			}
		}()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			b.Fatalf("%s: %v", f.name, err)
		}
	}
	return r
}

// swap writes a key that was last written at a revision, like kube-apiserver, and returns the revision of the write.
func (r *registry) swap(key string, revision int64) (int64, error) {
	answer, err := r.client.Txn(context.Background()).
		If(clientv3.Compare(clientv3.ModRevision(key), "=", revision)).
		Then(clientv3.OpPut(key, r.value)).
		Else(clientv3.OpGet(key)).
		Commit()
	if err != nil {
		return 0, err
	}
	if !answer.Succeeded {
		return 0, fmt.Errorf("%s was not at revision %d", key, revision)
	}
	return answer.Header.Revision, nil
}

func (r *registry) update(caller, i int) error {
	known := &r.revisions[caller][i%registryKeys]
	revision, err := r.swap(fmt.Sprintf("%slease-%d-%d", registryUpdated, caller, i%registryKeys), *known)
	*known = revision
	return err
}

func (r *registry) list(int, int) error { return r.read(0, r.listed) }

func (r *registry) page(int, int) error { return r.read(500, min(500, r.listed)) }

func (r *registry) read(limit int64, want int) error {
	answer, err := r.client.Get(context.Background(), registryPrefix, clientv3.WithPrefix(), clientv3.WithLimit(limit))
	if err == nil && (len(answer.Kvs) != want || answer.Count != int64(r.listed)) {
		return fmt.Errorf("%d of %d keys, want %d of %d", len(answer.Kvs), answer.Count, want, r.listed)
	}
	return err
}

// events returns the time from the start of a write until a watcher has its event. Writes start at random moments, so that a
// polling server receives them at any point between two polls.
func (r *registry) events(b *testing.B, watcher *clientv3.Client) []time.Duration {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	const prefix = "/registry/events/default/"
	watch := watcher.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithPrevKV(), clientv3.WithCreatedNotify())
	if first := <-watch; !first.Created {
		b.Fatalf("the watch begins with %v, %v", first, first.Err())
	}
	var latencies []time.Duration
	for i := range scaled(40) {
		time.Sleep(rand.N(observation(1200 * time.Millisecond)))
		key := fmt.Sprintf("%s%d-%d", prefix, operations.Add(1), i)
		began := time.Now()
		if _, err := r.swap(key, 0); err != nil {
			b.Fatal(err)
		}
		answer := <-watch
		if answer.Err() != nil || len(answer.Events) != 1 || string(answer.Events[0].Kv.Key) != key {
			b.Fatalf("after the write of %s the watch returned %v, %v", key, answer.Events, answer.Err())
		}
		latencies = append(latencies, time.Since(began))
	}
	return latencies
}
