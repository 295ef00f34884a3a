package postgres

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ashlar-dev/storage"
)

// newIdle creates the part of a database that retries use, without a server.
func newIdle(t *testing.T) *database {
	d := &database{}
	d.lifetime, d.end = context.WithCancel(t.Context())
	d.abortCtx, d.abort = context.WithCancel(t.Context())
	t.Cleanup(d.end)
	t.Cleanup(d.abort)
	return d
}

// A call whose context ends in the middle of an attempt also reports the error of the previous attempt, which is more informative.
func TestRetryNamesTheCause(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	attempts := 0
	err := newIdle(t).retry(ctx, func(ctx context.Context) error {
		if attempts++; attempts == 1 {
			return &pgconn.PgError{Severity: "ERROR", Code: "53100", Message: "no space left on device"}
		}
		cancel()
		<-ctx.Done()
		return ctx.Err()
	})
	if attempts != 2 || !errors.Is(err, storage.ErrInconsistent) || !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("after %d attempts: %v; expected 2, ErrInconsistent, the context's error, and why the first attempt failed", attempts, err)
	}
}
