//go:build !integration

package migrate

import (
	"testing"

	"github.com/ashlar-dev/storage/internal/leaks"
)

func TestMain(m *testing.M) {
	if child() {
		return
	}
	leaks.Main(m)
}

// kinds returns the kinds of stores under test. Without the tag integration, these are the stores that need no server.
func kinds() []storeKind { return local }
