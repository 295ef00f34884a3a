//go:build integration && unix

package migrate

import (
	"testing"

	"github.com/ashlar-dev/storage/internal/test/env"
)

// TestFrozenPostgresToEtcd is TestFrozenProcess between two servers.
func TestFrozenPostgresToEtcd(t *testing.T) {
	t.Parallel()
	testFrozenProcess(t, env.Postgres(t).StoreURL(t), env.Etcd(t).StoreURL(t), Following)
}
