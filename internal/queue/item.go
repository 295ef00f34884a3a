package queue

import "time"

// Options configures a queue. The zero value of each field selects its default.
type Options struct {
	// BaseDelay is the delay after the first failure, which doubles with each further one: 5 ms.
	BaseDelay time.Duration
	// MaxDelay bounds the delay after failures: 1,000 s.
	MaxDelay time.Duration
	// LowWait is the time after which low keys alternate with normal ones: 5 s.
	LowWait time.Duration
}

// item is the state of a key that is not idle, or that has failed.
type item[K comparable] struct {
	key       K
	ticket    uint64        // of its entry in a list; 0 if it is not ready
	dueAt     time.Duration // time of the delayed run, since the start of the queue
	heapIndex int           // in delays; -1 if it is not delayed
	failures  uint8         // in a row, at most maxFailures
	isLow     bool          // it waits in the low list, or its delayed run will
	isRunning bool
	isDirty   bool // it was added during its run
}

// maxFailures is the maximum number of counted failures of a key. More do not change its delay.
const maxFailures = 100
