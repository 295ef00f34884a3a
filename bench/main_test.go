//go:build integration

package bench

import (
	"testing"

	"github.com/ashlar-dev/storage/internal/test/env"
)

func TestMain(m *testing.M) { env.Main(m) }
