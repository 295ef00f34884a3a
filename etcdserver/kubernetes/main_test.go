//go:build !integration

package kubernetes

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/ashlar-dev/storage/internal/leaks"
)

func TestMain(m *testing.M) {
	// A read that has waited for the cache leaves this goroutine behind for three seconds.
	leaks.Main(m, goleak.IgnoreAnyFunction("k8s.io/apiserver/pkg/storage/cacher.(*watchCache).waitUntilFreshLocked.func2"))
}
