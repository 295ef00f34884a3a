//go:build integration

package postgres_test

import (
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/conformance/mover"
	"github.com/ashlar-dev/storage/internal/storetest"
	"github.com/ashlar-dev/storage/internal/testenv"
)

func TestMover(t *testing.T) {
	t.Parallel()
	mover.Run(t, mover.Harness{
		Open: func(t *testing.T) (one, other storage.Backend) {
			url := testenv.Postgres(t).StoreURL(t)
			return storetest.Open(t, url), storetest.Open(t, url)
		},
	})
}
