//go:build integration

package postgres

import (
	"testing"

	"github.com/ashlar-dev/storage/internal/storetest"
	"github.com/ashlar-dev/storage/internal/testenv"
	"github.com/ashlar-dev/storage/internal/tokentest"
)

func TestForgedTokens(t *testing.T) {
	t.Parallel()
	ctx, server := storetest.Context(t), testenv.Postgres(t)
	tokentest.Run(t, openHandle(t, ctx, server.StoreURL(t)), openHandle(t, ctx, server.StoreURL(t)))
}
