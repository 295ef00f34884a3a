//go:build !integration

package lease_test

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	if !serveCandidate() {
		os.Exit(m.Run())
	}
}
