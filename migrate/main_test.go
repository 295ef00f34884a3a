package migrate

import (
	"testing"

	"go.uber.org/goleak"

	_ "github.com/ashlar-dev/storage/inmem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
