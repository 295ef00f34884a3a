package controllertest_test

import (
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/controller/controllertest"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/internal/test/stores"
)

func TestMain(m *testing.M) { stores.Main(m) }

func TestRules(t *testing.T) {
	for name, h := range stores.All {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			open := func(t *testing.T) storage.Backend { return fixture.Open(t, h.URL(t)) }
			if name == "Memory" {
				open = nil // in virtual time
			}
			controllertest.Test(t, open)
		})
	}
}
