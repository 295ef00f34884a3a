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

// Stores in this process; the tag integration adds databases.
func kinds() []storeKind { return local }
