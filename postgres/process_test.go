//go:build integration

package postgres_test

import (
	"testing"

	"github.com/ashlar-dev/storage/internal/processtest"
	"github.com/ashlar-dev/storage/internal/testenv"
)

// A continue token and a revision of one process are good in another one, while the first writes.
func TestPagesInOtherProcesses(t *testing.T) { processtest.Run(t, testenv.Postgres(t).StoreURL(t)) }
