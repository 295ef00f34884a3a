package backend

import (
	"time"

	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/telemetry"
)

// Options configure a Backend for its driver. The zero value of each field selects its default.
type Options[P any] struct {
	// MaxSize is the maximum size of a resource in bytes, without its version: 1 MiB, which is also the upper bound.
	MaxSize int
	// MaxOps is the maximum number of mutations in one Apply: 32, which is also the lower bound.
	MaxOps int
	// Timeout bounds calls whose context has no deadline: 30 seconds. If it is negative, contexts without a deadline reach the
	// driver unchanged; this suits a driver that never waits.
	Timeout time.Duration
	// BoundedGet reports that Driver.Get limits its own time, so it gets no deadline.
	BoundedGet bool
	// UnboundedFence reports that Mover.SetFence takes its own time: a context without a deadline reaches it unchanged.
	UnboundedFence bool
	// Outage is how long a watch that reads from history retries while the database fails: 5 minutes.
	Outage time.Duration
	// IdleTimeout is how long Source.Run continues after the last watch was closed. 0 keeps it running as long as the backend.
	IdleTimeout time.Duration
	// LogEvents is the number of events kept for watches that are slightly behind: 10,000.
	LogEvents int
	// Telemetry records the calls of the backend. Nil records nothing. Close closes it.
	Telemetry *telemetry.Recorder
	// OnDelivered, if set, is called with each event just before a watch returns it.
	OnDelivered func(ev *driver.Event[P])
}

// The defaults of Options.
const (
	DefaultTimeout = 30 * time.Second
	DefaultOutage  = 5 * time.Minute
	minOps         = 32
)

func (o Options[P]) withDefaults() Options[P] {
	if o.MaxSize <= 0 || o.MaxSize > driver.MaxSize {
		o.MaxSize = driver.MaxSize
	}
	if o.MaxOps < minOps {
		o.MaxOps = minOps
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.Outage <= 0 {
		o.Outage = DefaultOutage
	}
	return o
}
