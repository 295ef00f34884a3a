package conformance

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
)

// TestRunnerOutcomes checks that cases outside of go test end as tests do.
func TestRunnerOutcomes(t *testing.T) {
	for name, tc := range map[string]struct {
		do   func(r testing.TB)
		want Result
	}{
		"passes":              {func(r testing.TB) { r.Log("well"); r.Cleanup(func() { r.Log("done") }) }, Result{Log: "well\ndone\n"}},
		"fails and goes on":   {func(r testing.TB) { r.Errorf("a %d", 1); r.Error("b") }, Result{Failure: "a 1\nb"}},
		"fails and ends":      {func(r testing.TB) { defer r.Log("deferred"); r.Fatal("a"); r.Error("b") }, Result{Failure: "a", Log: "deferred\n"}},
		"fails silently":      {func(r testing.TB) { r.FailNow() }, Result{Failure: "it failed without a message"}},
		"fails when it ends":  {func(r testing.TB) { r.Cleanup(func() { r.Fatalf("late") }) }, Result{Failure: "late"}},
		"skips":               {func(r testing.TB) { r.Skip("no"); r.Error("b") }, Result{NotRun: "no", Log: "no\n"}},
		"its context is over": {func(r testing.TB) { r.Cleanup(func() { r.Log(r.Context().Err()) }) }, Result{Log: "context canceled\n"}},
	} {
		got := attempt(t.Context(), name, tc.do, time.Minute)
		tc.want.Case, tc.want.Took = name, got.Took
		if got != tc.want {
			t.Errorf("%s: got %+v, want %+v", name, got, tc.want)
		}
	}
	if got := attempt(t.Context(), "panics", func(testing.TB) { panic("oh") }, time.Minute); !strings.HasPrefix(got.Failure, "panic: oh\n") {
		t.Errorf("a panic: got %+v", got)
	}
}

// TestCheck checks that a report has all selected cases, in order, with the reasons of exemptions.
func TestCheck(t *testing.T) {
	var progress []string
	h := harnessOf("")
	h.OneHandle = "a test"
	report, err := Check(t.Context(), h, Options{
		Run:      regexp.MustCompile("^(Cursors|Versions)/"),
		Progress: func(r Result, done, of int) { progress = append(progress, fmt.Sprintf("%d/%d", done, of)) },
	})
	if err != nil {
		t.Fatal(err)
	}
	var names, left []string
	for _, r := range report.Results {
		names = append(names, r.Case)
		if r.NotRun != "" {
			left = append(left, r.Case+": "+r.NotRun)
		}
		if r.Failure != "" {
			t.Errorf("%s: %s", r.Case, r.Failure)
		}
	}
	var want []string
	for _, topic := range []topic{versionCases, cursorCases} {
		for _, c := range topic.cases {
			want = append(want, topic.name+"/"+c.name)
		}
	}
	if !slices.Equal(names, want) {
		t.Errorf("results of %q, want %q", names, want)
	}
	if !slices.Contains(left, "Versions/NeverUsedTwiceAfterRestart: a test") || slices.Contains(left, "Cursors/Garbage: a test") {
		t.Errorf("left out: %q", left)
	}
	if n := len(want); len(progress) != n || progress[n-1] != fmt.Sprintf("%d/%d", n, n) {
		t.Errorf("progress %q of %d cases", progress, n)
	}
}

func TestCheckFinds(t *testing.T) {
	report, err := Check(t.Context(), harnessOf("versions count from one"), Options{Run: regexp.MustCompile("^Versions/NeverUsedTwiceAfterRestart$|^Versions/Garbage$")})
	if err != nil {
		t.Fatal(err)
	}
	if garbage, twice := report.Results[0], report.Results[1]; garbage.Failure != "" || !strings.Contains(twice.Failure, "got the version of write") {
		t.Errorf("got %+v", report.Results)
	}
}

// A run that is not possible is an error: a harness that contradicts itself or the backend, and a store that cannot be opened.
func TestCheckRefuses(t *testing.T) {
	lying := harnessOf("")
	lying.NoPager = "no reason"
	for want, h := range map[string]Harness{
		"set one of Harness.URL and Harness.Open": {},
		"although Harness.NoPager says":           lying,
		"opening a store: .*unknown scheme":       {URL: func(testing.TB) string { return "nosuch://" }},
	} {
		if _, err := Check(t.Context(), h, Options{}); err == nil || !regexp.MustCompile(want).MatchString(err.Error()) {
			t.Errorf("got error %v, want %q", err, want)
		}
	}
}

// TestCheckInterrupted ends the context of a Check: unfinished cases are not failures, stores are closed, and the error is the
// cause.
func TestCheckInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	because := errors.New("the user has had enough")
	opened, closed := 0, 0
	var mu sync.Mutex
	h := harnessOf("")
	inner := h.Open
	h.Open = func(t testing.TB) storage.Backend {
		mu.Lock()
		defer mu.Unlock()
		if opened++; opened == 3 {
			cancel(because)
		}
		t.Cleanup(func() { mu.Lock(); defer mu.Unlock(); closed++ })
		return inner(t)
	}
	report, err := Check(ctx, h, Options{Parallel: 1})
	if !errors.Is(err, because) {
		t.Errorf("got error %v", err)
	}
	if opened != closed {
		t.Errorf("%d stores were opened and %d cleaned up", opened, closed)
	}
	for _, r := range report.Results {
		if r.Failure != "" {
			t.Errorf("%+v", r)
		}
	}
	if !slices.ContainsFunc(report.Results, func(r Result) bool { return r.NotRun == interruptReason }) {
		t.Error("no case was interrupted")
	}
}
