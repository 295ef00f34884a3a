//go:build integration && unix

package migrate

import (
	"testing"

	"github.com/ashlar-dev/storage/internal/testenv"
)

// TestFrozenPostgresToEtcd is TestFrozenProcess between two servers.
func TestFrozenPostgresToEtcd(t *testing.T) {
	t.Parallel()
	standsStill(t, testenv.Postgres(t).StoreURL(t), testenv.Etcd(t).StoreURL(t), Following)
}
