//go:build integration

package etcd_test

import (
	"testing"

	"github.com/ashlar-dev/storage/internal/testenv"
	"github.com/ashlar-dev/storage/internal/tokentest"
)

func TestForgedTokens(t *testing.T) {
	t.Parallel()
	server := testenv.Etcd(t)
	tokentest.Run(t, open(t, server.StoreURL(t)), open(t, server.StoreURL(t)))
}
