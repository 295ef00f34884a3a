package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/apitesting"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/apis/example"
	examplev1 "k8s.io/apiserver/pkg/apis/example/v1"
	"k8s.io/apiserver/pkg/features"
	kube "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"
	"k8s.io/apiserver/pkg/storage/value"
	utilfeature "k8s.io/apiserver/pkg/util/feature"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/etcdserver"
)

var (
	scheme = runtime.NewScheme()
	codec  = apitesting.TestCodec(serializer.NewCodecFactory(scheme), examplev1.SchemeGroupVersion)
)

func init() {
	metav1.AddToGroupVersion(scheme, metav1.SchemeGroupVersion)
	utilruntime.Must(example.AddToScheme(scheme))
	utilruntime.Must(examplev1.AddToScheme(scheme))
}

const (
	podsPrefix = "/pods/"
	// dataPrefix is the prefix that the tests' transformer adds to stored data.
	dataPrefix = "test!"
)

var pods = schema.GroupResource{Resource: "pods"}

func newPod() runtime.Object     { return &example.Pod{} }
func newPodList() runtime.Object { return &example.PodList{} }

// harness is storage of pods in a new store, with direct access for tests.
type harness struct {
	kube.Interface
	store       *Store
	prefix      string      // of all keys
	connection  *connection // of Interface
	kv          *storagetesting.KVRecorder
	lists       *storagetesting.KubernetesRecorder
	transformer *transformer
	codec       *failingCodec
}

// newHarness opens storage like Kubernetes' factory, but keeps the errors of a transformer, as some tests require.
func newHarness(
	t testing.TB, backend storage.Backend, prefix string, connect func(*etcdserver.Server) *connection,
) *harness {
	t.Helper()
	t.Cleanup(func() {
		if err := backend.Close(); err != nil {
			t.Error(err)
		}
	})
	store, err := New(backend, &Options{CompactionInterval: -1, Server: etcdserver.Options{ProgressInterval: time.Second}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	h := &harness{
		store: store, prefix: prefix, connection: newConnection(store.server), transformer: newTransformer(), codec: &failingCodec{Codec: codec},
	}
	h.lists = storagetesting.NewKubernetesRecorder(h.connection.Kubernetes)
	h.kv = storagetesting.NewKVRecorder(h.connection.KV, h.lists)
	h.connection.KV, h.connection.Kubernetes = h.kv, h.lists

	config := storagebackend.NewDefaultConfig(prefix, h.codec)
	config.LeaseManagerConfig.ReuseDurationSeconds = 1 // tests wait for objects to expire
	config.Transformer = h.transformer
	var release func()
	h.Interface, release, err = store.newStorage(
		h.connection, config.ForResource(pods), newPod, newPodList, podsPrefix,
		h.transformer, etcd3.NewDefaultDecoder(h.codec, kube.APIObjectVersioner{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return h
}

// put writes a key beside the pods, and so increments the revision.
func (h *harness) put(ctx context.Context, t *testing.T) int64 {
	t.Helper()
	answer, err := h.connection.KV.Put(ctx, "beside", "pods")
	if err != nil {
		t.Fatal(err)
	}
	return answer.Header.Revision
}

// compact compacts like the compactor of another API server, and waits until the store has noticed.
func (h *harness) compact(ctx context.Context, t *testing.T, version string) {
	t.Helper()
	revision, err := strconv.ParseInt(version, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	for past := int64(0); ; {
		var done int64
		// A compactor that does not know the last compaction gets it returned, and retries.
		if past, _, done, err = etcd3.Compact(ctx, h.connection.Client.Client, past, revision); err != nil {
			t.Fatal(err)
		}
		if done == revision {
			break
		}
	}
	// Without this feature stores do not check for compactions.
	if utilfeature.DefaultFeatureGate.Enabled(features.ListFromCacheSnapshot) {
		eventually(ctx, t, func() bool { return h.CompactRevision() == revision })
	}
}

// eventually waits for a condition.
func eventually(ctx context.Context, t *testing.T, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("the condition was not met within 3 minutes")
		}
	}
}

// checkStored reports an object that contains fields which must not be stored.
func (h *harness) checkStored(ctx context.Context, t *testing.T, key string) {
	t.Helper()
	answer, err := h.connection.KV.Get(ctx, h.prefix+key)
	if err != nil {
		t.Fatal(err)
	}
	if len(answer.Kvs) != 1 {
		t.Fatalf("%d values under %q, want 1", len(answer.Kvs), key)
	}
	object, err := runtime.Decode(codec, answer.Kvs[0].Value[len(dataPrefix):])
	if err != nil {
		t.Fatal(err)
	}
	if pod := object.(*example.Pod); pod.ResourceVersion != "" {
		t.Errorf("stored with version %q, want none: it is that of the key", pod.ResourceVersion)
	}
}

// checkCalls reports a list that took more requests than necessary: the page size doubles until the limit is reached.
func (h *harness) checkCalls(t *testing.T, pageSize, objects uint64) {
	t.Helper()
	if reads := h.transformer.readsAndReset(); reads != objects {
		t.Errorf("%d objects were read, want %d", reads, objects)
	}
	want := uint64(1)
	if pageSize > 0 {
		for read, page := uint64(1), pageSize; read < objects; want++ {
			page = min(2*page, 10_000)
			read += page
		}
	}
	if got := h.kv.GetReadsAndReset() + h.kv.GetStreamReadsAndReset(); got != want {
		t.Errorf("%d requests were made, want %d", got, want)
	}
}

// keys lists the stored keys of pods, as a registry does for the size estimator.
func (h *harness) keys(ctx context.Context) ([]string, error) {
	list := &example.PodList{}
	if err := h.GetList(ctx, podsPrefix, kube.ListOptions{Predicate: kube.Everything, Recursive: true}, list); err != nil {
		return nil, err
	}
	keys := make([]string, len(list.Items))
	for i, pod := range list.Items {
		keys[i] = fmt.Sprintf("/pods/%s/%s", pod.Namespace, pod.Name)
	}
	return keys, nil
}

// UpdatePrefixTransformer implements storagetesting.InterfaceWithPrefixTransformer.
func (h *harness) UpdatePrefixTransformer(modify storagetesting.PrefixTransformerModifier) func() {
	prefix := *h.transformer.prefix
	return h.transformer.swap(modify(&prefix))
}

// UpdateTransformer implements storagetesting.InterfaceWithTransformerOverride.
func (h *harness) UpdateTransformer(modify storagetesting.TransformerModifier) func() {
	return h.transformer.swap(modify(h.transformer.current()))
}

// errCorrupt returns Kubernetes' error for an unreadable object; its type is not exported.
func errCorrupt(t testing.TB) error {
	t.Helper()
	broken := newTransformer()
	broken.fail(true)
	_, _, err := etcd3.WithCorruptObjErrorHandlingTransformer(broken).TransformFromStorage(t.Context(), nil, value.DefaultContext(nil))
	return err
}

// transformer can be replaced, or made to fail, while a store uses it.
type transformer struct {
	prefix  *storagetesting.PrefixTransformer
	now     atomic.Pointer[value.Transformer]
	failing atomic.Bool
}

func newTransformer() *transformer {
	tr := &transformer{prefix: storagetesting.NewPrefixTransformer([]byte(dataPrefix), false)}
	var first value.Transformer = tr.prefix
	tr.now.Store(&first)
	return tr
}

func (tr *transformer) current() value.Transformer { return *tr.now.Load() }

// swap replaces the current transformer until the returned function is called.
func (tr *transformer) swap(next value.Transformer) (restore func()) {
	before := tr.now.Swap(&next)
	return func() { tr.now.Store(before) }
}

func (tr *transformer) fail(failing bool) { tr.failing.Store(failing) }

func (tr *transformer) readsAndReset() uint64 { return tr.prefix.GetReadsAndReset() }

var errBroken = errors.New("broken on purpose")

func (tr *transformer) TransformFromStorage(ctx context.Context, data []byte, about value.Context) ([]byte, bool, error) {
	if tr.failing.Load() {
		return nil, false, errBroken
	}
	return tr.current().TransformFromStorage(ctx, data, about)
}

func (tr *transformer) TransformToStorage(ctx context.Context, data []byte, about value.Context) ([]byte, error) {
	return tr.current().TransformToStorage(ctx, data, about)
}

// failingCodec can be made to fail.
type failingCodec struct {
	runtime.Codec
	failing atomic.Bool
}

func (c *failingCodec) fail(failing bool) { c.failing.Store(failing) }

func (c *failingCodec) Decode(
	data []byte, kind *schema.GroupVersionKind, into runtime.Object,
) (runtime.Object, *schema.GroupVersionKind, error) {
	if c.failing.Load() {
		return nil, nil, errBroken
	}
	return c.Codec.Decode(data, kind, into)
}
