//go:build !integration

package tablestest_test

import (
	"os"
	"testing"

	"github.com/ashlar-dev/storage/typed/tables/tablestest"
)

func TestMain(m *testing.M) {
	if !tablestest.ServePeer() {
		os.Exit(m.Run())
	}
}
