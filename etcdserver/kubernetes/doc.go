// Package kubernetes stores the objects of Kubernetes API servers in any backend that is a [history.Historian]: in memory, in SQLite, in
// Postgres or in etcd. It is linked into servers: aggregated API servers, and servers of custom resources. A kube-apiserver needs no
// change, because it can call package etcdserver by gRPC.
//
// The package does not reimplement Kubernetes' storage.Interface. Kubernetes' own store for etcd makes calls of etcd's API, and package
// etcdserver answers them from the backend, in the same process and without a network. So the semantics are Kubernetes' own:
// resource versions, lists at a version, continue tokens, preconditions, watches and their bookmarks, expiry.
//
//	store, err := kubernetes.New(backend, nil)
//	…
//	defer store.Close()
//	options.RecommendedOptions.Etcd.SkipHealthEndpoints = true // there is no etcd
//	…
//	config.RESTOptionsGetter = store.RESTOptions(config.RESTOptionsGetter)
package kubernetes
