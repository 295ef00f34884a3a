package sqlite

import (
	"context"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// countdownContext is a context that ends when it has been asked so many times whether it has.
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

// discardRows is Rows that keeps nothing.
type discardRows struct{ driver.Rows }

func (discardRows) Add(_, _, _ []byte) error { return nil }

// TestInterruptedBeginLeavesNoTransaction has the time of snapshots end while their transaction begins. SQLite looks whether it is
// interrupted now and then, also after BEGIN was carried out, and then reports an error of what has happened. A connection that is
// given back inside a transaction shows its later users the past.
func TestInterruptedBeginLeavesNoTransaction(t *testing.T) {
	t.Parallel()
	s := open(t, newPath(t), &Options{Readers: 1})
	id := idOf("one")
	res := fixture.Write(t, s, resource("one", 1))
	everything := driver.Filter{Group: "*", Kind: "*", Partition: "*", Namespace: "*"}
	for i := range 3000 {
		ctx := &countdownContext{t.Context(), 1} // after the look that precedes BEGIN
		if err := s.handle.inSnapshot(ctx, "read the rows", func(c *conn) error { return c.scan(&everything, discardRows{}) }); err == nil {
			t.Fatalf("scan %d: its time has not ended", i)
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
			t.Fatalf("after %d scans that were interrupted, a read shows version %q, expected %q", i+1, got.Version, res.Version)
		}
	}
}
