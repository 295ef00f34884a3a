package kubernetes

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/features"
	kube "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/feature"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/utils/clock"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/etcdserver"
)

// Options are the options of a Store. A nil *Options stands for the zero value.
type Options struct {
	// CompactionInterval is how often history is given up: what was already there at the compaction before. History then reaches back
	// for one to two intervals, unless the backend forgets earlier by itself, as its retention says. 0 is Kubernetes' default of five
	// minutes; with less than 0 this store compacts nothing.
	CompactionInterval time.Duration
	// Server are the options of the server that answers etcd's calls in the process.
	Server etcdserver.Options
}

// Store makes the storage of API servers in one backend. Its methods are safe for concurrent use.
type Store struct {
	server     *etcdserver.Server
	connection *connection // of the compactor
	compactor  compactor
}

// compactor is what etcd3.NewCompactor returns.
type compactor interface {
	etcd3.Compactor
	Stop()
}

// New returns a store in a backend, which has to be a [history.Historian] and stays the caller's: close it after the store. Any number
// of stores and of servers of package etcdserver, in other processes too, may have the same backend.
func New(backend storage.Backend, opts *Options) (*Store, error) {
	if opts == nil {
		opts = &Options{}
	}
	server, err := etcdserver.New(backend, &opts.Server)
	if err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	s := &Store{server: server, connection: newConnection(server)}
	// Kubernetes serves consistent reads from its caches once it knows that the server can say how far a watch is.
	feature.DefaultFeatureSupportChecker.CheckClient(s.connection.Ctx(), s.connection, kube.RequestWatchProgress)
	s.compactor = etcd3.NewCompactor(s.connection.Client.Client, interval(opts.CompactionInterval), clock.RealClock{}, nil)
	return s, nil
}

// interval returns the interval for a compactor, which takes 0 to mean that it only follows what others compact.
func interval(option time.Duration) time.Duration {
	switch {
	case option == 0:
		return storagebackend.DefaultCompactInterval
	case option < 0:
		return 0
	default:
		return option
	}
}

// Close ends the server, and all watches with it, those of storage that was not released too. Release what Interface and the decorators
// made before.
func (s *Store) Close() {
	s.compactor.Stop()
	s.connection.close()
	s.server.Close()
}

// Interface returns the storage of one kind of objects, without a cache. It takes what Kubernetes' factory.Create takes; what the
// config says about the place of an etcd, its type and compaction does not matter. The returned function releases the storage, and may
// be called more than once.
func (s *Store) Interface(
	config *storagebackend.ConfigForResource, newFunc, newListFunc func() runtime.Object, resourcePrefix string,
) (kube.Interface, factory.DestroyFunc, error) {
	// Each storage has a connection of its own, because the progress of watches is told for all of a connection's together.
	c := newConnection(s.server)
	c.KV = etcd3.NewETCDLatencyTracker(c.KV)
	transformer := config.Transformer
	if transformer == nil {
		transformer = identity.NewEncryptCheckTransformer()
	}
	decoder := etcd3.NewDefaultDecoder(config.Codec, kube.APIObjectVersioner{})
	if !utilfeature.DefaultFeatureGate.Enabled(features.AllowUnsafeMalformedObjectDeletion) {
		return s.newStorage(c, config, newFunc, newListFunc, resourcePrefix, transformer, decoder)
	}
	raw, release, err := s.newStorage(c, config, newFunc, newListFunc, resourcePrefix,
		etcd3.WithCorruptObjErrorHandlingTransformer(transformer), etcd3.WithCorruptObjErrorHandlingDecoder(decoder))
	if err != nil {
		return nil, nil, err
	}
	return etcd3.NewStoreWithUnsafeCorruptObjectDeletion(raw, config.GroupResource), release, nil
}

// newStorage is Interface over a connection, which belongs to the storage from then on, with nothing around it.
func (s *Store) newStorage(
	c *connection, config *storagebackend.ConfigForResource, newFunc, newListFunc func() runtime.Object, resourcePrefix string,
	transformer value.Transformer, decoder etcd3.Decoder,
) (kube.Interface, factory.DestroyFunc, error) {
	store, err := etcd3.New(c.Client, s.compactor, config.Codec, newFunc, newListFunc, config.Prefix, resourcePrefix,
		config.GroupResource, transformer, config.LeaseManagerConfig, decoder, kube.APIObjectVersioner{})
	if err != nil {
		c.close()
		return nil, nil, fmt.Errorf("kubernetes: storage of %s: %w", config.GroupResource, err)
	}
	return store, sync.OnceFunc(func() {
		store.Close()
		c.close()
	}), nil
}
