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

// The stores that need nothing but this process; with the tag integration there are more.
func kinds() []storeKind { return local }
