//go:build integration

package kubernetes

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/apis/example"
	kube "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"
	"k8s.io/klog/v2"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/internal/test/env"
)

var (
	rounds  = flag.Int("rounds", 3, "how often each side of a benchmark gets its turn")
	updated = flag.Int("updated", 1_000, "how many pods BenchmarkUpstreamWrite changes")
	listed  = flag.Int("listed", 10_000, "how many pods BenchmarkUpstreamList lists")
)

// sides are the measured alternatives: Kubernetes' own storage in a real etcd, over a connection, and this package in the process.
var sides = []struct {
	name string
	open func(b *testing.B) kube.Interface
}{
	{"etcd", openEtcd},
	{"memory", func(b *testing.B) kube.Interface { return openOurs(b, inmem.New(nil)) }},
	{"sqlite", func(b *testing.B) kube.Interface {
		return openOurs(b, open(b, "sqlite://"+filepath.Join(diskDir(b), "kube.db")))
	}},
	{"postgres", func(b *testing.B) kube.Interface { return openOurs(b, open(b, env.Postgres(b).StoreURL(b))) }},
}

// diskDir returns a new directory, in ASHLAR_BENCH_DIR if that is set, because the system's temporary directory may be in memory.
func diskDir(b *testing.B) string {
	b.Helper()
	dir, err := os.MkdirTemp(os.Getenv("ASHLAR_BENCH_DIR"), "kubernetes-")
	if err == nil {
		dir, err = filepath.Abs(dir)
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			b.Error(err)
		}
	})
	return dir
}

// resource returns the configuration of a server without flags.
func resource() *storagebackend.ConfigForResource {
	config := storagebackend.NewDefaultConfig("/registry", codec)
	config.CompactionInterval = 0
	return config.ForResource(pods)
}

func openEtcd(b *testing.B) kube.Interface {
	config := resource()
	config.Transport.ServerList = []string{env.StartEtcd(b).Endpoint}
	return opened(b)(factory.Create(*config, newPod, newPodList, podsPrefix))
}

func openOurs(b *testing.B, backend storage.Backend) kube.Interface {
	b.Cleanup(func() {
		if err := backend.Close(); err != nil {
			b.Error(err)
		}
	})
	store, err := New(backend, &Options{CompactionInterval: -1})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(store.Close)
	return opened(b)(store.Interface(resource(), newPod, newPodList, podsPrefix))
}

func opened(b *testing.B) func(kube.Interface, factory.DestroyFunc, error) kube.Interface {
	return func(s kube.Interface, release factory.DestroyFunc, err error) kube.Interface {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(release)
		return s
	}
}

var quiet sync.Once

// takeTurns opens all sides, creates the same pods in each, and runs turn on one after the other.
func takeTurns(b *testing.B, data storagetesting.BenchmarkData, turn func(b *testing.B, s kube.Interface)) {
	b.Helper()
	quiet.Do(func() {
		flags := flag.NewFlagSet("klog", flag.ContinueOnError)
		klog.InitFlags(flags)
		if err := errors.Join(flags.Set("logtostderr", "false"), flags.Set("stderrthreshold", "FATAL")); err != nil {
			b.Fatal(err)
		}
		klog.SetOutput(io.Discard) // Kubernetes logs an error for a watch that ends by itself
	})
	stores := make([]kube.Interface, len(sides))
	for i, side := range sides {
		stores[i] = side.open(b)
		if err := storagetesting.PrecreateBenchmarkPods(b.Context(), stores[i], data); err != nil {
			b.Fatalf("%s: %v", side.name, err)
		}
	}
	for round := range *rounds {
		for i, side := range sides {
			b.Run(fmt.Sprintf("round=%d/%s", round+1, side.name), func(b *testing.B) { turn(b, stores[i]) })
		}
	}
}

// BenchmarkUpstreamWrite is Kubernetes' benchmark of writes, with 25 callers per processor, preceded by the same writes with one caller.
func BenchmarkUpstreamWrite(b *testing.B) {
	data := storagetesting.PrepareBenchmarkData(20, max(1, *updated/20), 100)
	takeTurns(b, data, func(b *testing.B, s kube.Interface) {
		s = changing{s}
		b.Run("Traffic=DeleteCreate/Parallelism=1", func(b *testing.B) { alone(b, data, s, deleteCreate) })
		b.Run("Traffic=Patch/Parallelism=1", func(b *testing.B) { alone(b, data, s, patch) })
		storagetesting.RunBenchmarkWriteThroughput(b.Context(), b, s, data, false, nil)
	})
}

// BenchmarkUpstreamList is Kubernetes' benchmark of lists.
func BenchmarkUpstreamList(b *testing.B) {
	data := storagetesting.PrepareBenchmarkData(20, max(1, *listed/20), 100)
	takeTurns(b, data, func(b *testing.B, s kube.Interface) {
		storagetesting.RunBenchmarkStoreList(b.Context(), b, s, data, false)
	})
}

// writes counts the writes of the process.
var writes atomic.Int64

// alone is the load of Kubernetes' benchmark, which has at least 25 callers, with one caller.
func alone(
	b *testing.B, data storagetesting.BenchmarkData, s kube.Interface,
	write func(ctx context.Context, s kube.Interface, key string, pod *example.Pod) error,
) {
	for b.Loop() {
		i := int(writes.Add(1)) % len(data.Pods)
		if err := write(b.Context(), s, data.PodKeys[i], data.Pods[i]); err != nil {
			b.Fatal(err)
		}
	}
}

func deleteCreate(ctx context.Context, s kube.Interface, key string, pod *example.Pod) error {
	err := s.Delete(ctx, key, &example.Pod{}, nil, kube.ValidateAllObjectFunc, nil, kube.DeleteOptions{})
	if err != nil {
		return err
	}
	return s.Create(ctx, key, pod.DeepCopy(), &example.Pod{}, 0)
}

func patch(ctx context.Context, s kube.Interface, key string, _ *example.Pod) error {
	same := func(now runtime.Object, _ kube.ResponseMeta) (runtime.Object, *uint64, error) { return now, nil, nil }
	return s.GuaranteedUpdate(ctx, key, &example.Pod{}, false, nil, same, nil)
}

// changing is storage whose updates all differ. Kubernetes' benchmark sets the same annotation each time, and storage does not
// write unchanged objects.
type changing struct{ kube.Interface }

// GuaranteedUpdate implements storage.Interface.
func (c changing) GuaranteedUpdate(
	ctx context.Context, key string, to runtime.Object, ignoreNotFound bool, conditions *kube.Preconditions, update kube.UpdateFunc,
	cached runtime.Object,
) error {
	change := func(now runtime.Object, about kube.ResponseMeta) (runtime.Object, *uint64, error) {
		next, ttl, err := update(now, about)
		if err != nil {
			return nil, nil, err
		}
		pod := next.(*example.Pod)
		if pod.Annotations == nil {
			pod.Annotations = map[string]string{}
		}
		pod.Annotations["change"] = fmt.Sprint(writes.Add(1))
		return pod, ttl, nil
	}
	return c.Interface.GuaranteedUpdate(ctx, key, to, ignoreNotFound, conditions, change, cached)
}
