package postgres

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ashlar-dev/storage"
)

// An expired context returns its own error, not a doubt about a database that was not contacted.
func TestNewWithAContextThatIsOver(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), "postgres://user@127.0.0.1:1/nothing")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := New(ctx, pool, nil); !errors.Is(err, context.Canceled) || errors.Is(err, storage.ErrInconsistent) {
		t.Errorf("%v, expected the context's error alone", err)
	}
}
