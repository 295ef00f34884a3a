package inmem_test

import (
	"testing"

	"github.com/ashlar-dev/storage/conformance/faults"
	"github.com/ashlar-dev/storage/internal/test/torture"
)

// TestTorture has the history forgotten; nothing else can befall a store in memory.
func TestTorture(t *testing.T) { torture.Run(t, "memory", tortureMemory) }

func tortureMemory(t *testing.T, o faults.Options) {
	h := faults.Harness{
		Open:   torture.Opener("mem://faults"),
		Faults: []faults.Fault{torture.Compact(torture.Reopen("mem://faults?history=1", "mem://faults?history=100000"))},
	}
	for _, kind := range faults.Kinds() {
		if kind != faults.Compact {
			torture.Exempt(&h, "the store is memory of this process: nothing stands in front of it, and it ends with the process", kind)
		}
	}
	faults.Test(t, h, o)
}
