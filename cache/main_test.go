package cache_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/ashlar-dev/storage/conformance/faults"
)

func TestMain(m *testing.M) {
	if faults.ServeProcess() {
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}
