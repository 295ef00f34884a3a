package sqlite

import (
	"context"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// countdownContext is a context whose Err returns nil a number of times and then DeadlineExceeded.
type countdownContext struct {
	context.Context
	after int
}

func (e *countdownContext) Err() error {
	if e.after--; e.after < 0 {
		return context.DeadlineExceeded
	}
	return nil
}

// discardRows implements driver.Rows and discards the rows.
type discardRows struct{ driver.Rows }

func (discardRows) Add(_, _, _ []byte) error { return nil }

// TestInterruptedBeginLeavesNoTransaction ends the context of snapshots during BEGIN. SQLite checks for interrupts
// after BEGIN took effect too, and then BEGIN fails although the transaction is open. A connection returned to the pool
// inside a transaction would show later readers old data.
func TestInterruptedBeginLeavesNoTransaction(t *testing.T) {
	t.Parallel()
	s := open(t, newPath(t), &Options{Readers: 1})
	id := idOf("one")
	res := fixture.Write(t, s, resource("one", 1))
	everything := driver.Filter{Group: "*", Kind: "*", Partition: "*", Namespace: "*"}
	for i := range 3000 {
		ctx := &countdownContext{t.Context(), 1} // ends after the check that precedes BEGIN
		if err := s.handle.inSnapshot(ctx, "read the rows", func(c *conn) error { return c.scan(&everything, discardRows{}) }); err == nil {
			t.Fatalf("scan %d succeeded, expected an interrupt", i)
		}
		if i%100 != 0 {
			continue
		}
		res = fixture.Write(t, s, res)
		got, err := s.Read(t.Context(), storage.StrongConsistency, id)
		if err != nil {
			t.Fatal(err)
		}
		if got.Version != res.Version {
			t.Fatalf("after %d interrupted scans a read returned version %q, expected %q", i+1, got.Version, res.Version)
		}
	}
}
