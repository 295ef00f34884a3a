package postgres

import (
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
)

type countingHandler struct {
	ctxwatch.Handler
	count int
}

func (h *countingHandler) HandleUnwatchAfterCancel() { h.count++ }

// TestClosedConnectionKeepsItsDeadline removes the deadline of a cancelled call only from a connection that stays open.
func TestClosedConnectionKeepsItsDeadline(t *testing.T) {
	t.Parallel()
	var inner countingHandler
	closed := &closingHandler{&inner, new(pgconn.PgConn)} // a connection that was never open counts as closed
	if closed.HandleUnwatchAfterCancel(); inner.count != 0 || !closed.conn.IsClosed() {
		t.Errorf("the deadline of a closed connection was removed %d times", inner.count)
	}
}
