// Package kubetest runs a real, unmodified kube-apiserver on the databases of this project, over the etcd face of package etcdserver, and
// looks whether clients can tell the difference. It is a module of its own, because it compiles two million lines: make kubetest.
package kubetest
