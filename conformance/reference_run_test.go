package conformance

import (
	"testing"

	"github.com/ashlar-dev/storage"
)

func harnessOf(bug string) Harness {
	return Harness{
		Open:    func(testing.TB) storage.Backend { return newStore(bug).open() },
		Another: func(_ testing.TB, b storage.Backend) storage.Backend { return b.(*handle).store.open() },
	}
}

func TestReference(t *testing.T) {
	Run(t, harnessOf(""))
}
