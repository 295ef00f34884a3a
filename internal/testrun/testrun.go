// Package testrun runs code written for a test outside of go test: in a program, or in the test of a suite that checks the failures
// of its cases.
package testrun

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
)

// T is a testing.TB outside of go test. It embeds the interface for its unexported method, and implements all others.
type T struct {
	testing.TB
	name   string
	ctx    context.Context
	cancel context.CancelFunc

	mu         sync.Mutex
	hasFailed  bool
	hasSkipped bool
	failures   strings.Builder
	log        strings.Builder
	cleanups   []func()
}

// New returns a T of that name. Its context ends with ctx, and before its cleanups run.
func New(ctx context.Context, name string) *T {
	r := &T{name: name}
	r.ctx, r.cancel = context.WithCancel(ctx)
	return r
}

// Run runs f like a test, and then the cleanups. It is called once.
func (r *T) Run(f func()) {
	r.contain(f)
	r.cancel()
	for {
		r.mu.Lock()
		if len(r.cleanups) == 0 {
			r.mu.Unlock()
			return
		}
		last := r.cleanups[len(r.cleanups)-1]
		r.cleanups = r.cleanups[:len(r.cleanups)-1]
		r.mu.Unlock()
		r.contain(last)
	}
}

// contain runs f in a goroutine of its own, which f may end by returning, by FailNow (runtime.Goexit), or by a panic.
func (r *T) contain(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				r.Errorf("panic: %v\n%s", p, debug.Stack())
			}
		}()
		f()
	}()
	<-done
}

// Outcome is the result of a test.
type Outcome struct {
	Failure string // the errors; "" if there are none
	Skipped string // the reason if it was skipped
	Log     string // the rest of its log
}

// Outcome returns the result of the test so far.
func (r *T) Outcome() Outcome {
	r.mu.Lock()
	defer r.mu.Unlock()
	got := Outcome{Failure: strings.TrimSpace(r.failures.String()), Log: r.log.String()}
	if r.hasFailed && got.Failure == "" {
		got.Failure = "it failed without a message"
	}
	if r.hasSkipped && !r.hasFailed {
		got.Skipped = strings.TrimSpace(got.Log)
	}
	return got
}

// Name implements testing.TB.
func (r *T) Name() string { return r.name }

// Context implements testing.TB.
func (r *T) Context() context.Context { return r.ctx }

// Helper implements testing.TB; T reports no lines of code.
func (r *T) Helper() {}

// Attr implements testing.TB; it goes to the log.
func (r *T) Attr(key, value string) { r.Logf("%s: %s", key, value) }

// Output implements testing.TB; it goes to the log.
func (r *T) Output() io.Writer { return output{r} }

// Cleanup implements testing.TB.
func (r *T) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

// TempDir implements testing.TB.
func (r *T) TempDir() string {
	dir, err := os.MkdirTemp("", "trial-")
	if err != nil {
		r.Fatalf("TempDir: %v", err)
	}
	r.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			r.Errorf("TempDir: %v", err)
		}
	})
	return dir
}

// ArtifactDir implements testing.TB; nothing is kept.
func (r *T) ArtifactDir() string { return r.TempDir() }

// Setenv implements testing.TB; it fails the test.
func (r *T) Setenv(key, _ string) { r.Fatalf("Setenv(%q): other cases run in this process", key) }

// Chdir implements testing.TB; it fails the test.
func (r *T) Chdir(dir string) { r.Fatalf("Chdir(%q): other cases run in this process", dir) }

func (r *T) note(on *strings.Builder, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(on, format+"\n", args...)
}

// Log implements testing.TB.
func (r *T) Log(args ...any) { r.note(&r.log, "%s", fmt.Sprint(args...)) }

// Logf implements testing.TB.
func (r *T) Logf(format string, args ...any) { r.note(&r.log, format, args...) }

// Fail implements testing.TB.
func (r *T) Fail() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hasFailed = true
}

// FailNow implements testing.TB.
func (r *T) FailNow() {
	r.Fail()
	runtime.Goexit()
}

// Failed implements testing.TB.
func (r *T) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.hasFailed
}

// Errorf implements testing.TB.
func (r *T) Errorf(format string, args ...any) {
	r.note(&r.failures, format, args...)
	r.Fail()
}

// Fatalf implements testing.TB.
func (r *T) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

// Error implements testing.TB.
func (r *T) Error(args ...any) { r.Errorf("%s", fmt.Sprint(args...)) }

// Fatal implements testing.TB.
func (r *T) Fatal(args ...any) { r.Fatalf("%s", fmt.Sprint(args...)) }

// SkipNow implements testing.TB.
func (r *T) SkipNow() {
	r.mu.Lock()
	r.hasSkipped = true
	r.mu.Unlock()
	runtime.Goexit()
}

// Skip implements testing.TB.
func (r *T) Skip(args ...any) { r.Log(args...); r.SkipNow() }

// Skipf implements testing.TB.
func (r *T) Skipf(format string, args ...any) { r.Logf(format, args...); r.SkipNow() }

// Skipped implements testing.TB.
func (r *T) Skipped() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.hasSkipped
}

// output writes to the log.
type output struct{ r *T }

func (o output) Write(p []byte) (int, error) {
	o.r.mu.Lock()
	defer o.r.mu.Unlock()
	return o.r.log.Write(p)
}
