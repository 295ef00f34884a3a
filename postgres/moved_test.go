//go:build integration

package postgres

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ashlar-dev/storage/driver"
)

// TestMovedBetweenTwoStatements reads on one server how far history is final, and then reads changes on another. The answer is not
// valid there.
func TestMovedBetweenTwoStatements(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	h := opened(t, ctx).handle.historian.history
	conn := acquire(t, ctx, h.main)
	final, server, err := h.finalOn(ctx, conn.Conn())
	if err != nil {
		t.Fatal(err)
	}
	begin := func(server string) error {
		l := &pageRead{history: h, conn: conn.Conn(), q: &driver.HistoryQuery[position]{}}
		defer l.end()
		return l.beginAfter(ctx, final, server)
	}
	if err := begin(server); err != nil {
		t.Errorf("on the same server: %v", err)
	}
	if err := begin(server + "0"); !errors.Is(err, errMoved) || classify(err) == outcomeRejected {
		t.Errorf("on another server: %v, expected a retriable error", err)
	}
}
