//go:build integration

package postgres_test

import (
	"testing"

	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/process"
)

// A continue token and a revision of one process are valid in another, while the first process writes.
func TestPagesInOtherProcesses(t *testing.T) { process.Run(t, env.Postgres(t).StoreURL(t)) }
