package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
	"github.com/ashlar-dev/storage/conformance"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/internal/scratchstore"
	"github.com/ashlar-dev/storage/resourcepb"
)

// conformance runs ashlar conformance. A long run prints its progress.
func (c *runner) conformance(ctx context.Context, args ...string) result {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 2*waitTimeout)
	defer cancel()
	var out, err bytes.Buffer
	code := run(ctx, c.app(strings.NewReader(""), &out, &err), append([]string{"conformance"}, args...))
	c.t.Logf("%s\n%s", out.String(), err.String())
	return result{code: code, out: out.String(), err: err.String()}
}

// checkConformance runs the command beside a user's store with some contents. Afterwards the store must be unchanged, and left must find no
// scratch store by its name. No other test may run at the same time, because the command checks for leaked goroutines.
func checkConformance(t *testing.T, storeURL string, left func(name string) []string, args ...string) result {
	t.Helper()
	c := newRunner(t, storeURL)
	c.ok("", "apply", "-f", boutique)
	before := c.ok("", "list", "*", "-A", "-o", "json")
	report := filepath.Join(t.TempDir(), "report.html")
	r := c.conformance(t.Context(), append(args, "--report", report)...)
	require.Equal(t, before, c.ok("", "list", "*", "-A", "-o", "json"))
	html, err := os.ReadFile(report)
	require.NoError(t, err)
	require.Contains(t, string(html), "</html>")
	name := regexp.MustCompile(`ashlar_conformance_[a-z0-9]{8}`).FindString(string(html))
	require.NotEmpty(t, name)
	require.Empty(t, left(name))
	if u, err := url.Parse(storeURL); err == nil {
		if password, has := u.User.Password(); has && len(password) > 10 {
			require.NotContains(t, r.out+r.err+string(html), password)
		}
	}
	return r
}

// quick selects cases of every kind, a short run under faults, and the checks for leaks.
var quick = []string{"--faults", "--for", "2s", "--seed", "4711", "--run", "^(Write|Leaks|URL|Histories|Faults)"}

func TestConformanceOfMemory(t *testing.T) {
	left := func(name string) (names []string) {
		for n := range 10 {
			name := fmt.Sprintf("mem://%s_%d", name, n)
			if b, err := storage.Open(t.Context(), name+"?create=off"); err == nil {
				names = append(names, name)
				_ = b.Close()
			}
		}
		return names
	}
	r := checkConformance(t, memoryURL(), left, quick...)
	require.Equal(t, cli.ExitOK, r.code)
	require.Regexp(t, `(?m)^✓ +[0-9.]+s  A write that is refused changes nothing$`, r.out)
	require.Regexp(t, `(?m)^– +0\.0s  The outcome of a write is unknown only .*\n +not checked: no fault was injected$`, r.out)
	require.Regexp(t, `\n\d+ guarantees: \d+ kept, 0 broken, 3 not checked; \d+ cases and \d.* under faults: \d+ calls, .*; seed 4711; .*s\n$`, r.out)
}

// The cases of writes and histories run on SQLite in its package, and by the command in TestConformanceOfMemory. This test is about the
// store's files and processes.
func TestConformanceOfSQLite(t *testing.T) {
	folder := t.TempDir()
	left := func(name string) (names []string) {
		all, err := os.ReadDir(folder)
		require.NoError(t, err)
		for _, e := range all {
			if strings.Contains(e.Name(), name) {
				names = append(names, e.Name())
			}
		}
		return names
	}
	both := regexp.MustCompile(`faults: kill client \d+, freeze client \d+; seed 4711`)
	for duration := 6 * time.Second; ; duration *= 4 { // a killed process that starts slowly leaves no time for the second fault
		r := checkConformance(t, "sqlite://"+filepath.ToSlash(filepath.Join(folder, "store.db"))+"?create=on&max-size=500000", left,
			"--faults", "--for", duration.String(), "--seed", "4711", "--run", "^(Leaks|URL|Faults)")
		require.Equal(t, cli.ExitOK, r.code)
		if both.MatchString(r.out) {
			break
		}
		require.Less(t, duration, time.Minute, "not both faults were injected")
	}
}

// TestConformanceInterrupted interrupts the command while its workers write: it reports that, and deletes its stores.
func TestConformanceInterrupted(t *testing.T) {
	const written = 1 << 20 // more than empty stores contain
	folder := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	size := func() (bytes int64) {
		all, _ := filepath.Glob(filepath.Join(folder, "*conformance*", "*")) // fails only for a malformed pattern
		for _, file := range all {
			if info, err := os.Stat(file); err == nil {
				bytes += info.Size()
			}
		}
		return bytes
	}
	var waiting sync.WaitGroup
	last := int64(0)
	waiting.Go(func() {
		defer cancel()
		for last < written {
			select {
			case <-ctx.Done():
				return
			case <-time.After(10 * time.Millisecond):
				last = size()
			}
		}
	})
	c := &runner{t: t, env: map[string]string{"ASHLAR_STORE": "sqlite://" + filepath.ToSlash(filepath.Join(folder, "store.db"))}}
	var out, complaints bytes.Buffer
	code := run(ctx, c.app(nil, &out, &complaints), []string{"conformance", "--faults", "--for", "1h", "--run", "Faults"})
	cancel()
	waiting.Wait()
	require.GreaterOrEqual(t, last, int64(written), "the command ended too early: %s", complaints.String())
	require.Equal(t, cli.ExitFailed, code)
	require.Contains(t, complaints.String(), "ashlar: interrupted\n")
	all, err := filepath.Glob(filepath.Join(folder, "*"))
	require.NoError(t, err)
	require.Empty(t, all)
}

// deletionLoser is a database that acknowledges deletions without executing them.
type deletionLoser struct{ *inmem.Backend }

func (deletionLoser) DeleteCAS(context.Context, *resourcepb.ID, string) error { return nil }

var errUndeletable = errors.New("the disk is read-only")

func init() {
	storage.Register("forgetful", func(ctx context.Context, u *url.URL) (storage.Backend, error) {
		b, err := inmem.Open(ctx, &url.URL{Scheme: "mem", Host: u.Host, RawQuery: u.RawQuery})
		return deletionLoser{b}, err
	})
	scratchstore.Register(func(u *url.URL, name string) (*scratchstore.Space, error) {
		return &scratchstore.Space{
			Location: "the forgetful " + name,
			Store:    func(n int) *url.URL { return &url.URL{Scheme: "forgetful", Host: fmt.Sprint(name, n)} },
			Drop: func(context.Context) error {
				if u.Query().Has("undeletable") {
					return errUndeletable
				}
				return nil
			},
		}, nil
	}, "forgetful")
}

// TestConformanceReportsViolations runs the suite against a database that breaks a guarantee.
func TestConformanceReportsViolations(t *testing.T) {
	report := filepath.Join(t.TempDir(), "report.html")
	r := newRunner(t, "forgetful://x").conformance(t.Context(), "--run", "^(Histories/Calls|URL/)", "--report", report)
	require.Equal(t, cli.ExitFailed, r.code)
	require.Contains(t, r.err, "Histories/Calls failed\n")
	require.Contains(t, r.err, "ashlar: a guarantee is broken: An acknowledged write is seen by every handle")
	require.Regexp(t, `(?m)^✗ .*  An acknowledged write is seen by every handle.*\n +Histories/Calls: `, r.out)
	require.Regexp(t, `(?m)^✓ .*  An error about a store's URL names the parameter, and never the password$`, r.out)
	html, err := os.ReadFile(report)
	require.NoError(t, err)
	require.Contains(t, string(html), "1 of 15 guarantees are broken")
	require.Contains(t, string(html), "Histories/Calls")
}

// TestConformanceCleanupFails checks that a failed cleanup is reported, with the names of the remaining stores.
func TestConformanceCleanupFails(t *testing.T) {
	r := newRunner(t, "forgetful://x?undeletable").conformance(t.Context(), "--run", "^Keys/ByteOrder$")
	require.Equal(t, cli.ExitFailed, r.code)
	require.Regexp(t, `(?m)^ashlar: the forgetful ashlar_conformance_\w+ could not be deleted: the disk is read-only$`, r.err)
}

func TestConformanceUsage(t *testing.T) {
	t.Parallel()
	for what, args := range map[string][]string{
		"for without faults":           {"--for", "1s"},
		"a crash without faults":       {"--crash-command", "true"},
		"no time":                      {"--faults", "--for", "0s"},
		"a malformed pattern":          {"--run", "("},
		"a pattern of nothing":         {"--run", "Nothing/AtAll"},
		"a pattern without the faults": {"--faults", "--run", "Write"},
		"no workers":                   {"--parallel", "0"},
		"an unknown scheme":            {"--store", "oracle://x"},
		"no scheme":                    {"--store", "store.db"},
		"an unknown parameter":         {"--store", "mem://x?colour=red"},
		"a fragment":                   {"--store", "mem://x#y"},
	} {
		require.Equal(t, cli.ExitUsage, newRunner(t, memoryURL()).run("", append([]string{"conformance"}, args...)...).code, what)
	}
}

// An unreachable database is reported at once, without a message about stores that were never created.
func TestConformanceUnreachable(t *testing.T) {
	t.Parallel()
	r := newRunner(t, "postgres://u:pa55word@127.0.0.1:1/d?sslmode=disable").run("", "conformance", "--timeout", "10s")
	require.Equal(t, cli.ExitFailed, r.code)
	require.NotContains(t, r.err, "pa55word")
	require.NotContains(t, r.err, "deleted")
}

func TestConformanceCrashCommandFails(t *testing.T) {
	r := newRunner(t, memoryURL()).conformance(t.Context(), "--faults", "--for", "10s", "--run", "Faults", "--crash-command", "echo no such server; exit 3")
	require.Equal(t, cli.ExitFailed, r.code)
	require.Contains(t, r.err, "--crash-command: exit status 3: no such server")
	require.NotContains(t, r.out, "✓", "of an aborted run")
}

// lossText returns the guarantee that is broken by losing acknowledged writes.
func lossText(t *testing.T) string {
	t.Helper()
	for _, g := range conformance.Guarantees() {
		if slices.Contains(g.Checks, "acknowledged changes stay") {
			return g.Text
		}
	}
	t.Fatal("no guarantee has this check")
	return ""
}
