//go:build !integration

package main

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/ashlar-dev/storage/internal/leaks"
)

func TestMain(m *testing.M) {
	// Kubernetes' cache has a goroutine that waits three seconds for each consistent read, even after the read and the cache have ended.
	leaks.Main(m, goleak.IgnoreAnyFunction("k8s.io/apiserver/pkg/storage/cacher.(*watchCache).waitUntilFreshLocked.func2"))
}
