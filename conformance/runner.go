package conformance

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

// runner is a testing.TB outside of go test. It embeds the interface for the method that nobody else can have, and has all others.
type runner struct {
	testing.TB
	name   string
	ctx    context.Context
	cancel context.CancelFunc

	mu       sync.Mutex
	failed   bool
	skipped  bool
	failures strings.Builder
	log      strings.Builder
	cleanups []func()
}

func newRunner(ctx context.Context, name string) *runner {
	r := &runner{name: name}
	r.ctx, r.cancel = context.WithCancel(ctx)
	return r
}

// run runs f as a test would be run, and then its cleanups.
func (r *runner) run(f func()) {
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

// contain has f end in a goroutine of its own: by returning, by the runtime.Goexit of FailNow, or by a panic.
func (r *runner) contain(f func()) {
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

// result is what the test has come to so far.
func (r *runner) result() Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	got := Result{Failure: strings.TrimSpace(r.failures.String()), Log: r.log.String()}
	if r.failed && got.Failure == "" {
		got.Failure = "it failed and did not say why"
	}
	if r.skipped && !r.failed {
		got.NotRun = strings.TrimSpace(got.Log)
	}
	return got
}

func (r *runner) Name() string             { return r.name }
func (r *runner) Context() context.Context { return r.ctx }
func (r *runner) Helper()                  {}
func (r *runner) Attr(key, value string)   { r.Logf("%s: %s", key, value) }
func (r *runner) Output() io.Writer        { return output{r} }

func (r *runner) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

func (r *runner) TempDir() string {
	dir, err := os.MkdirTemp("", "conformance-")
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

func (r *runner) ArtifactDir() string  { return r.TempDir() }
func (r *runner) Setenv(key, _ string) { r.Fatalf("Setenv(%q): other cases run in this process", key) }
func (r *runner) Chdir(dir string)     { r.Fatalf("Chdir(%q): other cases run in this process", dir) }
func (r *runner) note(on *strings.Builder, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(on, format+"\n", args...)
}

func (r *runner) Log(args ...any)                 { r.note(&r.log, "%s", fmt.Sprint(args...)) }
func (r *runner) Logf(format string, args ...any) { r.note(&r.log, format, args...) }

func (r *runner) Fail() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
}

func (r *runner) FailNow() {
	r.Fail()
	runtime.Goexit()
}

func (r *runner) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

func (r *runner) Errorf(format string, args ...any) {
	r.note(&r.failures, format, args...)
	r.Fail()
}

func (r *runner) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *runner) Error(args ...any) { r.Errorf("%s", fmt.Sprint(args...)) }
func (r *runner) Fatal(args ...any) { r.Fatalf("%s", fmt.Sprint(args...)) }

func (r *runner) SkipNow() {
	r.mu.Lock()
	r.skipped = true
	r.mu.Unlock()
	runtime.Goexit()
}

func (r *runner) Skip(args ...any)                 { r.Log(args...); r.SkipNow() }
func (r *runner) Skipf(format string, args ...any) { r.Logf(format, args...); r.SkipNow() }

func (r *runner) Skipped() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.skipped
}

// output writes to the log.
type output struct{ r *runner }

func (o output) Write(p []byte) (int, error) {
	o.r.mu.Lock()
	defer o.r.mu.Unlock()
	return o.r.log.Write(p)
}
