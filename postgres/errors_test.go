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
		want outcomeClass
	}{
		{pg("40001", "ERROR"), outcomeNotApplied},
		{pg("40P01", "ERROR"), outcomeNotApplied},
		{pg("25006", "ERROR"), outcomeNotApplied},
		{pg("55P03", "ERROR"), outcomeNotApplied},
		{pg("53300", "FATAL"), outcomeNotApplied},
		{pg("57P01", "FATAL"), outcomeUnknown},
		{pg("08006", "ERROR"), outcomeUnknown},
		{pg("XX000", "ERROR"), outcomeUnknown},
		{pg("99999", "PANIC"), outcomeUnknown},
		{pg("42501", "ERROR"), outcomeRejected},
		{pg("42P01", "ERROR"), outcomeRejected},
		{io.ErrUnexpectedEOF, outcomeUnknown},
		{context.DeadlineExceeded, outcomeUnknown},
		{fmt.Errorf("x: %w", pgconn.ErrConnClosed), outcomeUnknown},
		{pgx.ErrTxCommitRollback, outcomeNotApplied},
		{errLate, outcomeNotApplied},
		{fmt.Errorf("x: %w", permanent{io.EOF}), outcomeRejected},
	} {
		if got := classify(c.err); got != c.want {
			t.Errorf("fateOf(%v) = %d, expected %d", c.err, got, c.want)
		}
	}
}
