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

// RESTOptions returns a getter that answers as base does, except that objects are kept in the store, with Kubernetes' watch cache before
// it. So codecs, prefixes and encryption remain what base says. An API server takes it as Config.RESTOptionsGetter, one of custom
// resources as ExtraConfig.CRDRESTOptionsGetter too.
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

// Cached returns the storage of one kind of objects with Kubernetes' watch cache before it. It is a generic.StorageDecorator.
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

// withCache returns storage with a cache before it, the cache itself, and what ends both. It ends the storage if there is no cache for it.
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
