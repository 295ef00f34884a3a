// Package etcdserver serves a store by etcd's API, so that etcd's clients, Kubernetes' API server among them, run on any backend that is a
// [storage.Historian].
package etcdserver
