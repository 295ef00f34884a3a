//go:build integration

package postgres_test

import (
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/conformance/mover"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

func TestMover(t *testing.T) {
	t.Parallel()
	mover.Run(t, mover.Harness{
		Open: func(t *testing.T) (one, other storage.Backend) {
			url := env.Postgres(t).StoreURL(t)
			return fixture.Open(t, url), fixture.Open(t, url)
		},
	})
}
