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

// Options configures a Store. A nil *Options is the zero value.
type Options struct {
	// CompactionInterval is the interval of compactions. Each compacts the history up to the previous one, so history covers one to two
	// intervals, unless the retention of the backend is shorter. 0 means Kubernetes' default of five minutes. If it is negative, this store
	// does not compact.
	CompactionInterval time.Duration
	// Server configures the server that answers etcd's calls in the process.
	Server etcdserver.Options
}

// Store provides the storage of API servers in one backend. Its methods are safe for concurrent use.
type Store struct {
	server     *etcdserver.Server
	connection *connection // of the compactor
	compactor  compactor
}

// compactor is the result of etcd3.NewCompactor.
type compactor interface {
	etcd3.Compactor
	Stop()
}

// New returns a store in a backend, which must be a [history.Historian]. The caller keeps ownership of the backend, and must close it after
// the store. Several stores and servers of package etcdserver, also in other processes, may share a backend.
func New(backend storage.Backend, opts *Options) (*Store, error) {
	if opts == nil {
		opts = &Options{}
	}
	server, err := etcdserver.New(backend, &opts.Server)
	if err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	s := &Store{server: server, connection: newConnection(server)}
	// Kubernetes serves consistent reads from its caches if the server supports progress requests.
	feature.DefaultFeatureSupportChecker.CheckClient(s.connection.Ctx(), s.connection, kube.RequestWatchProgress)
	s.compactor = etcd3.NewCompactor(s.connection.Client.Client, interval(opts.CompactionInterval), clock.RealClock{}, nil)
	return s, nil
}

// interval returns the interval for a compactor. A compactor with interval 0 only follows the compactions of others.
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

// Close ends the server and all watches, including watches of storage that was not released. Release the storage from Interface and
// the decorators first.
func (s *Store) Close() {
	s.compactor.Stop()
	s.connection.close()
	s.server.Close()
}

// Interface returns the storage of one kind of objects, without a cache. It has the parameters of Kubernetes' factory.Create, but ignores
// the transport, type and compaction settings of the config. The returned function releases the storage, and may be called repeatedly.
func (s *Store) Interface(
	config *storagebackend.ConfigForResource, newFunc, newListFunc func() runtime.Object, resourcePrefix string,
) (kube.Interface, factory.DestroyFunc, error) {
	// Each storage has its own connection, because progress is reported for all watches of a connection together.
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

// newStorage implements Interface without wrappers. The storage takes over the connection.
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
