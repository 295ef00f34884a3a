package migrations_test

import (
	"testing"

	"github.com/ashlar-dev/storage/migrations"
)

func TestThereAreSteps(t *testing.T) {
	t.Parallel()
	if migrations.Latest < 2 {
		t.Fatalf("there are %d steps, so no upgrade to test", migrations.Latest)
	}
}
