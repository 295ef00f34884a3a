package streams

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
)

// Stream is the source of changes of a handle: the table's stream, read by the handle itself or by a relay.
type Stream interface {
	driver.Source[*Position]

	// Wake announces a write of the handle.
	Wake()
	// BeforeScan returns a position for a scan that begins after the call. It waits a moment for a proof that began after called, by the
	// local clock. With a proof, the position includes everything that was acknowledged before called, so that a watch which resumes from
	// it repeats nothing older. Use it only during a run.
	BeforeScan(ctx context.Context, called time.Time) (*Position, error)
	// AwaitEnd waits until the run has published every change of a store that nobody changes any more. It returns false if the proof gives
	// up. A change is published before the proof is complete, because a shard returns its records in the order of the acknowledgments. AWS
	// documents this order only for the records of one key. Use AwaitEnd only during a run.
	AwaitEnd(ctx context.Context) (proven bool, err error)
	// Join returns the position of a snapshot that was read after at and returned the baseline. The stream owns the baseline from then on.
	Join(at *Position, b *Baseline) *Position
	// Before returns a position before everything that is acknowledged after the call. Changes acknowledged before the call may follow
	// the position, too. Before reads no records.
	Before(ctx context.Context) (*Position, error)
}

// comparer compares positions with the shards that the latest run knows.
type comparer struct{ known atomic.Pointer[tree] }

func (c *comparer) tree() *tree {
	if t := c.known.Load(); t != nil {
		return t
	}
	return newTree()
}

// Contains implements driver.Source.
func (c *comparer) Contains(at *Position, ev *Event) bool {
	return at.baseline.has(ev.Key, ev.At.count) || c.tree().covers(at, ev.At)
}

// Advance implements driver.Source.
func (c *comparer) Advance(at *Position, ev *Event) *Position { return c.tree().merge(at, ev.At) }

// Merge implements driver.Source. It drops the baseline of a snapshot when a proof excludes older changes.
func (c *comparer) Merge(at, end *Position) *Position {
	merged := c.tree().merge(at, end)
	if b := merged.baseline; b != nil && (end.proofNumber >= b.until || end.asOf.After(b.scanEnded.Add(time.Minute))) {
		merged.baseline.Close()
		merged.baseline = nil
	}
	return merged
}

// Encode implements driver.Source.
func (*comparer) Encode(at *Position) []byte { return at.Encode() }

// Decode implements driver.Source.
func (*comparer) Decode(b []byte) (*Position, error) {
	at, err := DecodePosition(b)
	if err != nil {
		return nil, fmt.Errorf("%w: not a cursor", storage.ErrInvalid)
	}
	return at, nil
}
