// Package kubernetes keeps the objects of Kubernetes API servers in any backend that is a [history.Historian]: in memory, in SQLite,
// in Postgres or in etcd. It is for servers that are linked with it: aggregated API servers, and servers of custom resources. A
// kube-apiserver needs no change: it talks to package etcdserver by gRPC.
//
// Kubernetes' storage.Interface is not written anew here. Package etcdserver answers the calls of etcd's API from the backend, and
// Kubernetes' own store for etcd makes them, in the same process and without a network between them. So the semantics are those
// of Kubernetes: versions of resources, lists at a version, continue tokens, preconditions, watches and their bookmarks, expiry.
//
//	store, err := kubernetes.New(backend, nil)
//	…
//	defer store.Close()
//	options.RecommendedOptions.Etcd.SkipHealthEndpoints = true // there is no etcd
//	…
//	config.RESTOptionsGetter = store.RESTOptions(config.RESTOptionsGetter)
package kubernetes
