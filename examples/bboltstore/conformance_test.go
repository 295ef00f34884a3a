package bboltstore_test

import (
	"path/filepath"
	"testing"

	"github.com/ashlar-dev/storage/conformance"
	_ "github.com/ashlar-dev/storage/examples/bboltstore"
)

func TestConformance(t *testing.T) {
	conformance.Run(t, conformance.Harness{
		URL: func(t testing.TB) string { return "bbolt:" + filepath.Join(t.TempDir(), "store.db") },
	})
}
