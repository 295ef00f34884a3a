package postgres

import (
	"context"
	"fmt"
	"io"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

func TestFateOf(t *testing.T) {
	t.Parallel()
	pg := func(code, severity string) error {
		return fmt.Errorf("wrapped: %w", &pgconn.PgError{Code: code, Severity: severity, SeverityUnlocalized: severity})
	}
	for _, c := range []struct {
		err  error
		want fate
	}{
		{pg("40001", "ERROR"), undone},
		{pg("40P01", "ERROR"), undone},
		{pg("25006", "ERROR"), undone},
		{pg("55P03", "ERROR"), undone},
		{pg("53300", "FATAL"), undone},
		{pg("57P01", "FATAL"), unknown},
		{pg("08006", "ERROR"), unknown},
		{pg("XX000", "ERROR"), unknown},
		{pg("99999", "PANIC"), unknown},
		{pg("42501", "ERROR"), refused},
		{pg("42P01", "ERROR"), refused},
		{io.ErrUnexpectedEOF, unknown},
		{context.DeadlineExceeded, unknown},
		{fmt.Errorf("x: %w", pgconn.ErrConnClosed), unknown},
		{pgx.ErrTxCommitRollback, undone},
		{errLate, undone},
		{fmt.Errorf("x: %w", permanent{io.EOF}), refused},
	} {
		if got := fateOf(c.err); got != c.want {
			t.Errorf("fateOf(%v) = %d, expected %d", c.err, got, c.want)
		}
	}
}
