//go:build integration

package heap

import (
	"runtime"
	"testing"

	"github.com/ashlar-dev/storage/internal/test/env"
)

func TestMain(m *testing.M) { env.Main(m) }

// heap returns the bytes in use after a collection.
func heap() int {
	runtime.GC()
	runtime.GC() // memory that finalizers and pools held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
