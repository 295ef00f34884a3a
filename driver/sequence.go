package driver

import (
	"encoding/binary"
	"fmt"

	"github.com/ashlar-dev/storage"
)

// Sequence implements the positions of a [Source] if every change has a number, the numbers increase in commit order, and Event.At is
// the event's number. It also implements HasReached of a [Prover].
type Sequence struct{}

// Contains implements Source.
func (Sequence) Contains(at uint64, ev *Event[uint64]) bool { return ev.At <= at }

// Advance implements Source.
func (Sequence) Advance(_ uint64, ev *Event[uint64]) uint64 { return ev.At }

// Merge implements Source.
func (Sequence) Merge(at, end uint64) uint64 { return max(at, end) }

// HasReached implements Prover.
func (Sequence) HasReached(at, target uint64) bool { return at >= target }

// Encode implements Source.
func (Sequence) Encode(at uint64) []byte { return binary.BigEndian.AppendUint64(nil, at) }

// Decode implements Source.
func (Sequence) Decode(b []byte) (uint64, error) {
	if len(b) != 8 {
		return 0, fmt.Errorf("%w: malformed cursor", storage.ErrInvalid)
	}
	return binary.BigEndian.Uint64(b), nil
}
