// Package faultproxy gives tests a proxy.Proxy that ends with them.
package faultproxy

import (
	"testing"

	"github.com/ashlar-dev/storage/conformance/faults/proxy"
)

// Proxy is the proxy of the suite of faults.
type Proxy = proxy.Proxy

// Trap is one of its faults that lies in wait.
type Trap = proxy.Trap

// New starts a proxy in front of target, a host:port. It ends with the test.
func New(t testing.TB, target string) *Proxy {
	t.Helper()
	p, err := proxy.New(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}
