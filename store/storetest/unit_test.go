//go:build !integration

package storetest_test

import (
	"os"
	"testing"

	"github.com/ashlar-dev/storage/store/storetest"
)

func TestMain(m *testing.M) {
	if !storetest.ServePeer() {
		os.Exit(m.Run())
	}
}
