package faults

import (
	"math/rand/v2"
	"time"
)

// Options are the settings of a run. Zero values are the defaults.
type Options struct {
	// For is the working time of all rounds together, without healing and checking. The default is 20 seconds.
	For time.Duration

	// Round is the duration of one round. The default is 10 seconds.
	Round time.Duration

	// Seed determines the run, as far as the database and the scheduler allow; 0 draws one. The report contains it.
	Seed uint64

	// Handles is the number of handles on the store. The first one is not disturbed by faults. The default is 3.
	Handles int

	// Workers is the number of goroutines that call the store concurrently, over all handles. The default is 12.
	Workers int

	// Keys is the number of keys in a round, a quarter of them hot. The default is 12.
	Keys int

	// AtOnce is the maximum number of concurrent faults. The default is 2.
	AtOnce int

	// Calm is the maximum time between two faults. The default is 600 milliseconds.
	Calm time.Duration

	// Timeout is the maximum time for anything that must happen. The default is 2 minutes.
	Timeout time.Duration

	// Grace is how long a call may exceed its deadline, in addition to the lateness of the machine. The default is 5 seconds.
	Grace time.Duration

	// MaxHeap bounds the heap in bytes; the default is 1 GiB. MaxGoroutines bounds the goroutines; the default is 10,000.
	MaxHeap       uint64
	MaxGoroutines int

	// Directory is the folder for the history and its picture after a violation; "" writes none.
	Directory string

	// NoLeakCheck omits the search for goroutines that remain after Close. Set it if other tests run in the process at the same
	// time.
	NoLeakCheck bool

	// Log receives a line of progress from time to time; nil drops them.
	Log func(format string, args ...any)
}

func (o *Options) complete() {
	set(&o.For, 20*time.Second)
	set(&o.Round, 10*time.Second)
	set(&o.Handles, 3)
	set(&o.Workers, 12)
	set(&o.Keys, 12)
	set(&o.AtOnce, 2)
	set(&o.Calm, 600*time.Millisecond)
	set(&o.Timeout, 2*time.Minute)
	set(&o.Grace, 5*time.Second)
	set(&o.MaxHeap, 1<<30)
	set(&o.MaxGoroutines, 10_000)
	for o.Seed == 0 {
		o.Seed = rand.Uint64()
	}
	if o.Log == nil {
		o.Log = func(string, ...any) {}
	}
}

func set[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
