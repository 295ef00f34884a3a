//go:build !integration

package cache_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/ashlar-dev/storage/conformance/faults"
)

func TestMain(m *testing.M) {
	if !faults.ServeProcess() {
		goleak.VerifyTestMain(m)
	}
}
