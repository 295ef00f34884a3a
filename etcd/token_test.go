//go:build integration

package etcd_test

import (
	"testing"

	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/token"
)

func TestForgedTokens(t *testing.T) {
	t.Parallel()
	server := env.Etcd(t)
	token.Run(t, open(t, server.StoreURL(t)), open(t, server.StoreURL(t)))
}
