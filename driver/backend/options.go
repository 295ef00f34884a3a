package backend

import (
	"time"

	"github.com/ashlar-dev/storage/driver"
)

// Options are what the tier has to know of a driver. The zero value of each field means its default.
type Options[P any] struct {
	// MaxSize is the largest resource in bytes, without its version: 1 MiB, which is also the most.
	MaxSize int
	// MaxOps is the largest number of mutations in one Apply: 32, which is also the least.
	MaxOps int
	// Timeout bounds calls whose context has no deadline: 30 seconds. Negative: contexts without a deadline reach the driver as
	// they are, which suits one that never waits.
	Timeout time.Duration
	// BoundedGet says that Driver.Get ends by itself, so that it is spared a deadline.
	BoundedGet bool
	// UnboundedFence says that Mover.SetFence takes its own time, so that a context without a deadline reaches it as it is.
	UnboundedFence bool
	// Outage is how long a watch that reads from history goes on trying while the database fails: 5 minutes.
	Outage time.Duration
	// Linger is how long Source.Run goes on after the last watch was closed. 0: for as long as the backend.
	Linger time.Duration
	// LogEvents is the number of events that are kept for watches which are a little behind: 10,000.
	LogEvents int
	// OnDelivered, if set, is called with each event just before a watch returns it.
	OnDelivered func(ev *driver.Event[P])
}

// The defaults of Options.
const (
	DefaultTimeout = 30 * time.Second
	DefaultOutage  = 5 * time.Minute
	leastOps       = 32
)

func (o Options[P]) withDefaults() Options[P] {
	if o.MaxSize <= 0 || o.MaxSize > driver.MaxSize {
		o.MaxSize = driver.MaxSize
	}
	if o.MaxOps < leastOps {
		o.MaxOps = leastOps
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.Outage <= 0 {
		o.Outage = DefaultOutage
	}
	return o
}
