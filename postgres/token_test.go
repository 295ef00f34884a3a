//go:build integration

package postgres

import (
	"testing"

	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/internal/test/token"
)

func TestForgedTokens(t *testing.T) {
	t.Parallel()
	ctx, server := fixture.Context(t), env.Postgres(t)
	token.Run(t, openHandle(t, ctx, server.StoreURL(t)), openHandle(t, ctx, server.StoreURL(t)))
}
