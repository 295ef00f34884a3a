package kubernetes

import (
	"context"
	"path"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/features"
	kube "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"

	"github.com/ashlar-dev/storage"
)

// plain adapts a test that needs only the storage.
func plain(test func(context.Context, *testing.T, kube.Interface)) func(context.Context, *testing.T, *harness) {
	return func(ctx context.Context, t *testing.T, h *harness) { test(ctx, t, h) }
}

// runWatchSemantics runs a test in which the last event has arrived once there was none for 150 ms.
func runWatchSemantics(ctx context.Context, t *testing.T, s kube.Interface) {
	storagetesting.RunWatchSemantics(ctx, t, &pacedStore{Interface: s})
}

// pacedStore is storage whose creations return when a watch of their namespace has the event, or after a minute.
type pacedStore struct {
	kube.Interface
	watches sync.Map // by key
}

func (s *pacedStore) Watch(ctx context.Context, key string, opts kube.ListOptions) (watch.Interface, error) {
	w, err := s.Interface.Watch(ctx, key, opts)
	if err == nil {
		s.watches.Store(key, w)
	}
	return w, err
}

func (s *pacedStore) Create(ctx context.Context, key string, object, out runtime.Object, ttl uint64) error {
	w, watched := s.watches.Load(path.Dir(key))
	if !watched {
		return s.Interface.Create(ctx, key, object, out, ttl)
	}
	results := w.(watch.Interface).ResultChan()
	before := len(results)
	if err := s.Interface.Create(ctx, key, object, out, ttl); err != nil {
		return err
	}
	tick, late := time.NewTicker(time.Millisecond), time.After(time.Minute)
	defer tick.Stop()
	for len(results) == before {
		select {
		case <-tick.C:
		case <-late: // the test reports the missing event
			return nil
		}
	}
	return nil
}

// notWithoutCache are tests that do not apply to storage without a cache, with reasons.
var notWithoutCache = map[string]string{
	"RunTestOptionalWatchBookmarksWithCorrectResourceVersion": "only the cache makes bookmarks that nobody asked for",
}

var storageTests = []upstreamTest[*harness]{
	{upstream: "RunTestCreate", run: func(ctx context.Context, t *testing.T, h *harness) {
		storagetesting.RunTestCreate(ctx, t, h, h.checkStored)
	}},
	{upstream: "RunTestCreateWithTTL", run: plain(storagetesting.RunTestCreateWithTTL)},
	{upstream: "RunTestCreateWithKeyExist", run: plain(storagetesting.RunTestCreateWithKeyExist)},
	{upstream: "RunTestGet", hurried: true, run: plain(storagetesting.RunTestGet)},
	{upstream: "RunTestUnconditionalDelete", run: plain(storagetesting.RunTestUnconditionalDelete)},
	{upstream: "RunTestConditionalDelete", run: plain(storagetesting.RunTestConditionalDelete)},
	{upstream: "RunTestDeleteWithSuggestion", run: plain(storagetesting.RunTestDeleteWithSuggestion)},
	{upstream: "RunTestDeleteWithSuggestionAndConflict", run: plain(storagetesting.RunTestDeleteWithSuggestionAndConflict)},
	{upstream: "RunTestDeleteWithSuggestionOfDeletedObject", run: plain(storagetesting.RunTestDeleteWithSuggestionOfDeletedObject)},
	{upstream: "RunTestValidateDeletionWithSuggestion", run: plain(storagetesting.RunTestValidateDeletionWithSuggestion)},
	{upstream: "RunTestValidateDeletionWithOnlySuggestionValid",
		run: plain(storagetesting.RunTestValidateDeletionWithOnlySuggestionValid)},
	{upstream: "RunTestDeleteWithConflict", run: plain(storagetesting.RunTestDeleteWithConflict)},
	{upstream: "RunTestDeleteWithConflictAndMissingExpectedTransformOrDecodeError",
		run: func(ctx context.Context, t *testing.T, h *harness) {
			storagetesting.RunTestDeleteWithConflictAndMissingExpectedTransformOrDecodeError(ctx, t, h, h.codec.fail)
		}},
	{upstream: "RunTestDeleteExpectedTransformOrDecodeError", variant: "transform",
		run: func(ctx context.Context, t *testing.T, h *harness) {
			storagetesting.RunTestDeleteExpectedTransformOrDecodeError(ctx, t, h, h.transformer.fail)
		}},
	{upstream: "RunTestDeleteExpectedTransformOrDecodeError", variant: "decode",
		run: func(ctx context.Context, t *testing.T, h *harness) {
			storagetesting.RunTestDeleteExpectedTransformOrDecodeError(ctx, t, h, h.codec.fail)
		}},
	{upstream: "RunTestDeleteWithSuggestionAndMissingExpectedTransformOrDecodeError",
		run: func(ctx context.Context, t *testing.T, h *harness) {
			storagetesting.RunTestDeleteWithSuggestionAndMissingExpectedTransformOrDecodeError(ctx, t, h)
		}},
	{upstream: "RunTestPreconditionalDeleteWithSuggestion", run: plain(storagetesting.RunTestPreconditionalDeleteWithSuggestion)},
	{upstream: "RunTestPreconditionalDeleteWithOnlySuggestionPass",
		run: plain(storagetesting.RunTestPreconditionalDeleteWithOnlySuggestionPass)},
	{upstream: "RunTestListPaging", run: plain(storagetesting.RunTestListPaging)},
	{upstream: "RunTestGetListNonRecursive", run: func(ctx context.Context, t *testing.T, h *harness) {
		storagetesting.RunTestGetListNonRecursive(ctx, t, h.put, h)
	}},
	{upstream: "RunTestGetListRecursivePrefix", run: plain(storagetesting.RunTestGetListRecursivePrefix)},
	{upstream: "RunTestKeySchema", run: plain(storagetesting.RunTestKeySchema)},
	{upstream: "RunTestGetListWithErrorAggregation", run: func(ctx context.Context, t *testing.T, h *harness) {
		h.Interface = etcd3.NewStoreWithUnsafeCorruptObjectDeletion(h.Interface, pods)
		storagetesting.RunTestGetListWithErrorAggregation(ctx, t, h, errCorrupt(t))
	}},
	{upstream: "RunTestGetListWithoutErrorAggregation",
		gates: gates{features.AllowUnsafeMalformedObjectDeletion: false},
		run: func(ctx context.Context, t *testing.T, h *harness) {
			storagetesting.RunTestGetListWithoutErrorAggregation(ctx, t, h, errCorrupt(t))
		}},
	{upstream: "RunTestGuaranteedUpdate", run: func(ctx context.Context, t *testing.T, h *harness) {
		storagetesting.RunTestGuaranteedUpdate(ctx, t, h, h.checkStored)
	}},
	{upstream: "RunTestGuaranteedUpdateWithTTL", run: plain(storagetesting.RunTestGuaranteedUpdateWithTTL)},
	{upstream: "RunTestGuaranteedUpdateChecksStoredData", run: func(ctx context.Context, t *testing.T, h *harness) {
		storagetesting.RunTestGuaranteedUpdateChecksStoredData(ctx, t, h)
	}},
	{upstream: "RunTestGuaranteedUpdateWithConflict", run: plain(storagetesting.RunTestGuaranteedUpdateWithConflict)},
	{upstream: "RunTestGuaranteedUpdateWithSuggestionAndConflict",
		run: plain(storagetesting.RunTestGuaranteedUpdateWithSuggestionAndConflict)},
	{upstream: "RunTestTransformationFailure", run: func(ctx context.Context, t *testing.T, h *harness) {
		storagetesting.RunTestTransformationFailure(ctx, t, h)
	}},
	{upstream: "RunTestList", variant: "streamed", run: func(ctx context.Context, t *testing.T, h *harness) {
		storagetesting.RunTestList(ctx, t, h, h.compact, false, h.lists)
		if h.kv.GetStreamReadsAndReset() == 0 {
			t.Error("no list was streamed")
		}
	}},
	{upstream: "RunTestList", variant: "in pages", gates: gates{features.EtcdRangeStream: false},
		run: func(ctx context.Context, t *testing.T, h *harness) {
			storagetesting.RunTestList(ctx, t, h, h.compact, false, h.lists)
			if n := h.kv.GetStreamReadsAndReset(); n != 0 {
				t.Errorf("%d lists were streamed, want none", n)
			}
		}},
	{upstream: "RunTestConsistentList", variant: "streamed", run: func(ctx context.Context, t *testing.T, h *harness) {
		storagetesting.RunTestConsistentList(ctx, t, h, h.put, false, true, false)
	}},
	{upstream: "RunTestConsistentList", variant: "in pages", gates: gates{features.EtcdRangeStream: false},
		run: func(ctx context.Context, t *testing.T, h *harness) {
			storagetesting.RunTestConsistentList(ctx, t, h, h.put, false, true, false)
		}},
	{upstream: "RunTestCompactRevision", run: func(ctx context.Context, t *testing.T, h *harness) {
		storagetesting.RunTestCompactRevision(ctx, t, h, h.put, h.compact)
	}},
	{upstream: "RunTestListContinuation", run: func(ctx context.Context, t *testing.T, h *harness) {
		storagetesting.RunTestListContinuation(ctx, t, h, h.checkCalls)
	}},
	{upstream: "RunTestListPaginationRareObject", run: func(ctx context.Context, t *testing.T, h *harness) {
		storagetesting.RunTestListPaginationRareObject(ctx, t, h, h.checkCalls)
	}},
	{upstream: "RunTestListContinuationWithFilter", run: func(ctx context.Context, t *testing.T, h *harness) {
		storagetesting.RunTestListContinuationWithFilter(ctx, t, h, h.checkCalls)
	}},
	{upstream: "RunTestNamespaceScopedList", run: plain(storagetesting.RunTestNamespaceScopedList)},
	{upstream: "RunTestListInconsistentContinuation", run: func(ctx context.Context, t *testing.T, h *harness) {
		storagetesting.RunTestListInconsistentContinuation(ctx, t, h, h.compact)
	}},
	{upstream: "RunTestListResourceVersionMatch", run: func(ctx context.Context, t *testing.T, h *harness) {
		storagetesting.RunTestListResourceVersionMatch(ctx, t, h)
	}},
	{upstream: "RunTestStats", variant: "without sizes", run: func(ctx context.Context, t *testing.T, h *harness) {
		storagetesting.RunTestStats(ctx, t, h, codec, h.transformer, false)
	}},
	{upstream: "RunTestStats", variant: "with sizes", run: func(ctx context.Context, t *testing.T, h *harness) {
		if err := h.EnableResourceSizeEstimation(h.keys); err != nil {
			t.Fatal(err)
		}
		storagetesting.RunTestStats(ctx, t, h, codec, h.transformer, true)
	}},
	{upstream: "RunTestWatch", run: plain(storagetesting.RunTestWatch)},
	{upstream: "RunTestClusterScopedWatch", run: plain(storagetesting.RunTestClusterScopedWatch)},
	{upstream: "RunTestNamespaceScopedWatch", run: plain(storagetesting.RunTestNamespaceScopedWatch)},
	{upstream: "RunTestDeleteTriggerWatch", run: plain(storagetesting.RunTestDeleteTriggerWatch)},
	{upstream: "RunTestWatchFromZero", run: func(ctx context.Context, t *testing.T, h *harness) {
		storagetesting.RunTestWatchFromZero(ctx, t, h, h.compact)
	}},
	{upstream: "RunTestWatchFromNonZero", run: plain(storagetesting.RunTestWatchFromNonZero)},
	{upstream: "RunTestDelayedWatchDelivery", run: plain(storagetesting.RunTestDelayedWatchDelivery)},
	{upstream: "RunTestWatchError", run: func(ctx context.Context, t *testing.T, h *harness) {
		storagetesting.RunTestWatchError(ctx, t, h)
	}},
	{upstream: "RunTestWatchContextCancel", run: plain(storagetesting.RunTestWatchContextCancel)},
	{upstream: "RunTestWatcherTimeout", run: plain(storagetesting.RunTestWatcherTimeout)},
	{upstream: "RunTestWatchDeleteEventObjectHaveLatestRV", run: plain(storagetesting.RunTestWatchDeleteEventObjectHaveLatestRV)},
	{upstream: "RunTestWatchInitializationSignal", run: plain(storagetesting.RunTestWatchInitializationSignal)},
	{upstream: "RunOptionalTestProgressNotify", run: func(ctx context.Context, t *testing.T, h *harness) {
		storagetesting.RunOptionalTestProgressNotify(ctx, t, h, h.put)
	}},
	{upstream: "RunTestWatchWithUnsafeDelete", run: func(ctx context.Context, t *testing.T, h *harness) {
		storagetesting.RunTestWatchWithUnsafeDelete(ctx, t, h, errCorrupt(t))
	}},
	{upstream: "RunTestWatchDispatchBookmarkEvents", run: func(ctx context.Context, t *testing.T, h *harness) {
		storagetesting.RunTestWatchDispatchBookmarkEvents(ctx, t, h, false)
	}},
	{upstream: "RunSendInitialEventsBackwardCompatibility", run: plain(storagetesting.RunSendInitialEventsBackwardCompatibility)},
	{upstream: "RunWatchSemantics", untouched: true, variant: "streamed", alone: true,
		run: plain(runWatchSemantics)},
	{upstream: "RunWatchSemantics", untouched: true, alone: true, variant: "in pages", gates: gates{features.EtcdRangeStream: false},
		run: plain(runWatchSemantics)},
	{upstream: "RunWatchSemantics", untouched: true, alone: true, variant: "decoded one by one",
		gates: gates{features.ConcurrentWatchObjectDecode: false}, run: plain(runWatchSemantics)},
	{upstream: "RunWatchSemanticInitialEventsExtended", untouched: true, alone: true,
		run: plain(storagetesting.RunWatchSemanticInitialEventsExtended)},
	{upstream: "RunWatchListMatchSingle", alone: true, run: plain(storagetesting.RunWatchListMatchSingle)},
	{upstream: "RunWatchErrorIsBlockingFurtherEvents", run: func(ctx context.Context, t *testing.T, h *harness) {
		storagetesting.RunWatchErrorIsBlockingFurtherEvents(ctx, t, h)
	}},
}

var storageSuite = suite[*harness]{
	tests: storageTests,
	open: func(t *testing.T, _ upstreamTest[*harness], empty storage.Backend) *harness {
		return newHarness(t, empty, "", newConnection)
	},
}

// TestStorage runs Kubernetes' own tests on every engine, without its cache.
func TestStorage(t *testing.T) {
	t.Parallel()
	storageSuite.runTogether(t, engines)
}

// TestStorageAlone runs the tests that cannot run in parallel.
func TestStorageAlone(t *testing.T) { storageSuite.runAlone(t, engines) }
