// Package leaks finds goroutines that a test leaves behind. It is goleak for programs whose stacks may have more than 100 frames, as in a call of
// the AWS SDK. The runtime omits the frames in the middle, and goleak 1.3.0 panics at the line that reports it.
package leaks

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// maxWait bounds the wait for the end of deep calls.
const maxWait = 10 * time.Second

// IgnoreCurrent returns an option that ignores all present goroutines, as goleak.IgnoreCurrent does.
func IgnoreCurrent() (option goleak.Option, err error) {
	err = whileDeep(func() error {
		option = goleak.IgnoreCurrent()
		return nil
	})
	return option, err
}

// Find returns an error that lists the other goroutines, as goleak.Find does.
func Find(options ...goleak.Option) error {
	return whileDeep(func() error { return goleak.Find(options...) })
}

// Main runs the tests of a package as a TestMain, and fails if goroutines remain. It waits for them for a minute, because a goroutine that is
// ending may be suspended on a busy machine.
func Main(m *testing.M, options ...goleak.Option) {
	code := m.Run()
	if code == 0 {
		if err := AwaitNone(time.Minute, options...); err != nil {
			fmt.Fprintln(os.Stderr, "the tests passed, and goroutines remain:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// AwaitNone repeats Find until no goroutine remains. It returns the last error after a time.
func AwaitNone(limit time.Duration, options ...goleak.Option) error {
	for began := time.Now(); ; {
		err := Find(options...) // waits for a while by itself
		if err == nil || time.Since(began) > limit {
			return err
		}
	}
}

// errDeep reports that a goroutine had a deep stack all the time.
var errDeep = errors.New("the stack of a goroutine is too deep for goleak")

// whileDeep calls a function until it does not panic because of a deep stack.
func whileDeep(call func() error) error {
	tick, deadline := time.NewTicker(10*time.Millisecond), time.After(maxWait)
	defer tick.Stop()
	for {
		err := recoverDeep(call)
		if !errors.Is(err, errDeep) {
			return err
		}
		select {
		case <-tick.C:
		case <-deadline:
			return err
		}
	}
}

// recoverDeep returns a panic of the function as errDeep.
func recoverDeep(call func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", errDeep, p)
		}
	}()
	return call()
}
