package serve

import (
	"testing"

	"github.com/ashlar-dev/storage/internal/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }
