package controllertest_test

import (
	"path/filepath"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/controller/controllertest"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	_ "github.com/ashlar-dev/storage/sqlite"
)

func TestMemory(t *testing.T) {
	t.Parallel()
	controllertest.Test(t, nil)
}

func TestSQLite(t *testing.T) {
	t.Parallel()
	controllertest.Test(t, func(t *testing.T) storage.Backend {
		return fixture.Open(t, "sqlite:"+filepath.Join(t.TempDir(), "store.db"))
	})
}
