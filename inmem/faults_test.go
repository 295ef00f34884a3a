package inmem_test

import (
	"testing"

	"github.com/ashlar-dev/storage/conformance/faults"
	"github.com/ashlar-dev/storage/internal/test/torture"
)

// TestTorture compacts history under load, the only fault that a store in memory can have.
func TestTorture(t *testing.T) { torture.Run(t, "memory", tortureMemory) }

func tortureMemory(t *testing.T, o faults.Options) {
	h := faults.Harness{
		Open:   torture.Opener("mem://faults"),
		Faults: []faults.Fault{torture.Compact(torture.Reopen("mem://faults?history=1", "mem://faults?history=100000"))},
	}
	for _, kind := range faults.Kinds() {
		if kind != faults.Compact {
			torture.Exempt(&h, "the store is in memory of this process: it has no connection or server, and ends with the process", kind)
		}
	}
	faults.Test(t, h, o)
}
