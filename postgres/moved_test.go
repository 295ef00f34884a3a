//go:build integration

package postgres

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// TestMovedBetweenTwoStatements asks one server how far history is final, and reads on another one: the answer does not count there.
func TestMovedBetweenTwoStatements(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	h := opened(t, ctx).handle.reader.history
	conn := acquire(t, ctx, h.main)
	final, server, err := h.finalOn(ctx, conn.Conn())
	if err != nil {
		t.Fatal(err)
	}
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer rollback(tx) // it only reads
	if _, err := h.lastOn(ctx, tx, final, server); err != nil {
		t.Errorf("on the same server: %v", err)
	}
	if _, err := h.lastOn(ctx, tx, final, server+"0"); !errors.Is(err, errMoved) || classify(err) == outcomeRejected {
		t.Errorf("on another one: %v, expected one that has it tried again", err)
	}
}
