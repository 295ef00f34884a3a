package faults

import (
	"math/rand/v2"
	"time"
)

// Options are the settings of a run. Zero values are the defaults.
type Options struct {
	// For is how long workers work, all rounds together: 20 seconds. Healing and checking come on top.
	For time.Duration

	// Round is how long one round is: 10 seconds.
	Round time.Duration

	// Seed determines the run, as far as the database and the scheduler allow; 0 draws one. The report contains it.
	Seed uint64

	// Handles is how many handles work on the store, the first of them the way around the faults: 3.
	Handles int

	// Workers is how many goroutines call the store at once, over all handles: 12.
	Workers int

	// Keys is how many keys a round has, a quarter of them hot: 12.
	Keys int

	// AtOnce is how many faults there are at once, at most: 2.
	AtOnce int

	// Calm is how long there is between two faults, at most: 600 milliseconds.
	Calm time.Duration

	// Timeout is the maximum time for anything that must happen: 2 minutes.
	Timeout time.Duration

	// Grace is how far a call may go past its deadline: 5 seconds, and whatever the machine itself was late in that time.
	Grace time.Duration

	// MaxHeap bounds the heap in bytes: 1 GiB. MaxGoroutines bounds the goroutines: 10,000.
	MaxHeap       uint64
	MaxGoroutines int

	// Directory is where the history and its picture are written when something is violated; "" writes none.
	Directory string

	// NoLeakCheck leaves out the search for goroutines that remain after Close. Set it if other tests run in the process at the same
	// time.
	NoLeakCheck bool

	// Log gets a line now and then; nil drops them.
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
