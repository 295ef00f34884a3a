package kubernetes

import (
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	kube "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
)

// RESTOptions returns a getter like base that stores objects in the store, behind Kubernetes' watch cache. Codecs, prefixes and
// encryption remain base's. An API server uses it as Config.RESTOptionsGetter, an API server of custom resources also as
// ExtraConfig.CRDRESTOptionsGetter.
func (s *Store) RESTOptions(base generic.RESTOptionsGetter) generic.RESTOptionsGetter {
	return &restOptions{store: s, base: base}
}

type restOptions struct {
	store *Store
	base  generic.RESTOptionsGetter
}

// GetRESTOptions implements generic.RESTOptionsGetter.
func (r *restOptions) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	o, err := r.base.GetRESTOptions(resource, example)
	if err != nil {
		return generic.RESTOptions{}, err
	}
	o.Decorator = r.store.Cached
	return o, nil
}

// Cached returns the storage of one kind of objects behind Kubernetes' watch cache. It is a generic.StorageDecorator.
func (s *Store) Cached(
	config *storagebackend.ConfigForResource,
	resourcePrefix string,
	keyFunc func(obj runtime.Object) (string, error),
	newFunc, newListFunc func() runtime.Object,
	attributes kube.AttrFunc,
	triggers kube.IndexerFuncs,
	indexers *cache.Indexers,
) (kube.Interface, factory.DestroyFunc, error) {
	raw, release, err := s.Interface(config, newFunc, newListFunc, resourcePrefix)
	if err != nil {
		return nil, nil, err
	}
	cached, _, release, err := withCache(cacher.Config{
		Storage:             raw,
		Versioner:           raw.Versioner(),
		GroupResource:       config.GroupResource,
		EventsHistoryWindow: config.EventsHistoryWindow,
		ResourcePrefix:      resourcePrefix,
		KeyFunc:             keyFunc,
		NewFunc:             newFunc,
		NewListFunc:         newListFunc,
		GetAttrsFunc:        attributes,
		IndexerFuncs:        triggers,
		Indexers:            indexers,
		Codec:               config.Codec,
	}, release)
	return cached, release, err
}

// withCache returns storage behind a cache, the cache itself, and a function that ends both. If the cache cannot be created, it ends the
// storage.
func withCache(config cacher.Config, end func()) (kube.Interface, *cacher.Cacher, factory.DestroyFunc, error) {
	c, err := cacher.NewCacherFromConfig(config)
	if err != nil {
		end()
		return nil, nil, nil, fmt.Errorf("kubernetes: watch cache of %s: %w", config.GroupResource, err)
	}
	delegator := cacher.NewCacheDelegator(c, config.Storage)
	return delegator, c, sync.OnceFunc(func() {
		delegator.Stop()
		c.Stop()
		end()
	}), nil
}
