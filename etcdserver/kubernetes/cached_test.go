package kubernetes

import (
	"context"
	"fmt"
	"reflect"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/features"
	kube "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	clientfeatures "k8s.io/client-go/features"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// cached is storage of pods behind Kubernetes' watch cache.
type cached struct {
	kube.Interface // the cache
	*harness       // the storage below it
	expired        *expiring
}

// cacheOptions are the properties that tests expect of a cache: keys without namespaces, or indexes.
type cacheOptions struct{ clusterScoped, indexed bool }

func newCached(t *testing.T, h *harness, o cacheOptions) *cached {
	t.Helper()
	c := &cached{harness: h, expired: &expiring{Interface: h.Interface}}
	// The cache's first list fails, and it must start again. If it lists by a watch, nothing fails.
	failing := &storagetesting.StorageInjectingListErrors{Interface: c.expired, Errors: 1}
	if clientfeatures.FeatureGates().Enabled(clientfeatures.WatchListClient) {
		failing.Errors = 0
	}
	config := cacher.Config{
		Storage: failing, Versioner: failing.Versioner(), GroupResource: pods, EventsHistoryWindow: cacher.DefaultEventFreshDuration,
		ResourcePrefix: podsPrefix, NewFunc: newPod, NewListFunc: newPodList, GetAttrsFunc: attributes, Codec: h.codec, Clock: eagerClock{},
		KeyFunc:  func(object runtime.Object) (string, error) { return kube.NamespaceKeyFunc(podsPrefix, object) },
		Indexers: &cache.Indexers{},
	}
	if o.clusterScoped {
		config.KeyFunc = func(object runtime.Object) (string, error) { return kube.NoNamespaceKeyFunc(podsPrefix, object) }
	}
	if o.indexed {
		config.IndexerFuncs = kube.IndexerFuncs{"spec.nodeName": func(object runtime.Object) string {
			return object.(*example.Pod).Spec.NodeName
		}}
		config.Indexers = &cache.Indexers{
			"f:spec.nodeName":      func(object any) ([]string, error) { return []string{object.(*example.Pod).Spec.NodeName}, nil },
			"f:metadata.namespace": func(object any) ([]string, error) { return []string{object.(*example.Pod).Namespace}, nil },
		}
	}
	front, engine, release, err := withCache(config, func() {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	c.Interface = front
	eventually(t.Context(), t, func() bool {
		consumed, err := failing.ErrorsConsumed()
		return consumed && err == nil
	})
	if err := engine.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

// attributes returns the fields that select pods.
func attributes(object runtime.Object) (labels.Set, fields.Set, error) {
	pod := object.(*example.Pod)
	return pod.Labels, fields.Set{
		"metadata.name": pod.Name, "metadata.namespace": pod.Namespace, "spec.nodeName": pod.Spec.NodeName,
		"spec.restartPolicy": string(pod.Spec.RestartPolicy), "status.phase": string(pod.Status.Phase),
	}, nil
}

// eagerClock is a clock that makes the cache check for compactions at once instead of every 15 seconds.
type eagerClock struct{ clock.RealClock }

func (eagerClock) NewTimer(d time.Duration) clock.Timer {
	return clock.RealClock{}.NewTimer(min(d, 2*time.Second))
}

// expiring is storage whose watches can be made to expire.
type expiring struct {
	kube.Interface
	end  atomic.Pointer[context.CancelFunc] // ends the newest watch
	gone atomic.Bool                        // the next watch begins at compacted history
}

func (e *expiring) Watch(ctx context.Context, key string, opts kube.ListOptions) (watch.Interface, error) {
	if e.gone.CompareAndSwap(true, false) {
		return nil, apierrors.NewResourceExpired("too old, says the test")
	}
	ctx, cancel := context.WithCancel(ctx)
	e.end.Store(&cancel)
	return e.Interface.Watch(ctx, key, opts)
}

// expire makes the cache list again, as after an interruption longer than the history.
func (e *expiring) expire() {
	e.gone.Store(true)
	(*e.end.Load())()
}

// compact compacts the harness, and waits until the cache has dropped the older versions as well.
func (c *cached) compact(ctx context.Context, t *testing.T, version string) {
	t.Helper()
	c.harness.compact(ctx, t, version)
	if utilfeature.DefaultFeatureGate.Enabled(features.ListFromCacheSnapshot) {
		eventually(ctx, t, func() bool { return strconv.FormatInt(c.CompactRevision(), 10) == version })
	}
}

// compactWatches compacts and restarts the cache, so that its watches do not reach further back either.
func (c *cached) compactWatches(ctx context.Context, t *testing.T, version string) {
	t.Helper()
	c.harness.compact(ctx, t, version)
	c.expired.expire()
	eventually(ctx, t, func() bool {
		w, err := c.Watch(ctx, podsPrefix, kube.ListOptions{
			Predicate: kube.Everything, Recursive: true, ResourceVersion: before(t, version)})
		if err != nil {
			return false // it is starting
		}
		defer w.Stop()
		first, ok := <-w.ResultChan()
		return ok && first.Type == watch.Error
	})
}

// before returns the version before a given version.
func before(t *testing.T, version string) string {
	t.Helper()
	n, err := strconv.ParseInt(version, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return strconv.FormatInt(n-1, 10)
}

// pacedCache is a cache whose writes return when the newest watch has taken their events. The cache ends a watch whose two buffers are full,
// and a store in memory fills them before the goroutine of the watch has run.
type pacedCache struct {
	*cached
	t       *testing.T
	newest  watch.Interface
	written int // since the watch began
}

func (s *pacedCache) Watch(ctx context.Context, key string, opts kube.ListOptions) (watch.Interface, error) {
	w, err := s.cached.Watch(ctx, key, opts)
	s.newest, s.written = w, 0
	return w, err
}

func (s *pacedCache) GuaranteedUpdate(
	ctx context.Context, key string, out runtime.Object, missing bool, p *kube.Preconditions, update kube.UpdateFunc, suggestion runtime.Object,
) error {
	if err := s.cached.GuaranteedUpdate(ctx, key, out, missing, p, update, suggestion); err != nil {
		return err
	}
	s.written++
	results := s.newest.ResultChan()
	input := reflect.ValueOf(s.newest).Elem().FieldByName("input") // what the cache has sent and the goroutine has not taken
	eventually(ctx, s.t, func() bool {
		inHand := 1 // the goroutine waits with an event if there is no room for results
		return len(results) == min(s.written, cap(results)) && input.Len() == max(0, s.written-cap(results)-inHand)
	})
	return nil
}

// freshCache is a cache that is up to date after every creation of a pod.
type freshCache struct{ *cached }

func (s freshCache) Create(ctx context.Context, key string, object, out runtime.Object, ttl uint64) error {
	if err := s.cached.Create(ctx, key, object, out, ttl); err != nil {
		return err
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		var pod example.Pod
		err := s.Get(ctx, key, kube.GetOptions{ResourceVersion: "0"}, &pod)
		switch {
		case err == nil && equality.Semantic.DeepEqual(&pod, out):
			return nil
		case err != nil && !kube.IsNotFound(err):
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s has not come to the cache: %w", key, ctx.Err())
		}
	}
}
