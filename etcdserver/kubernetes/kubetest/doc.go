// Package kubetest runs an unmodified kube-apiserver on the supported databases, over the API of package etcdserver, and checks that
// clients see no difference. It is a separate module, because it compiles two million lines: make kubetest.
package kubetest
