//go:build !integration

package migrate

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if child() {
		return
	}
	goleak.VerifyTestMain(m)
}

// kinds returns the kinds of stores under test. Without the tag integration, these are the stores that need no server.
func kinds() []storeKind { return local }
