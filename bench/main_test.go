//go:build integration

package bench

import (
	"testing"

	"github.com/ashlar-dev/storage/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }
