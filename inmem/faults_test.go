package inmem_test

import (
	"testing"

	"github.com/ashlar-dev/storage/conformance/faults"
	"github.com/ashlar-dev/storage/internal/torture"
)

func TestTorture(t *testing.T) {
	h := faults.Harness{Open: torture.Opener("mem://faults")}
	torture.Exempt(&h, "the store is memory of this process: nothing stands in front of it, and it ends with the process", faults.Kinds()...)
	faults.Test(t, h, torture.Options(t))
}
