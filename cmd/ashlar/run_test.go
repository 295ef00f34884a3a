package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
)

// waitTimeout bounds the wait for an expected event.
const waitTimeout = 5 * time.Minute

var memoryStores atomic.Int64

// memoryURL returns the URL of a memory store for one test.
func memoryURL() string { return fmt.Sprintf("mem://cli-test-%d", memoryStores.Add(1)) }

// runner runs the command inside the test.
type runner struct {
	t     *testing.T
	env   map[string]string
	flags []string // of every run
}

// createStore creates the store at a URL, unless the URL is wrong: tests of URLs expect the error of the command.
func createStore(t *testing.T, storeURL string) string {
	t.Helper()
	if b, err := storage.Open(t.Context(), storeURL); err == nil {
		require.NoError(t, b.Close())
	}
	return storeURL
}

// newRunner returns a runner on a store, which it creates.
func newRunner(t *testing.T, storeURL string) *runner {
	t.Helper()
	createStore(t, storeURL)
	return &runner{t: t, env: map[string]string{"ASHLAR_STORE": storeURL}}
}

// result is the result of a run.
type result struct {
	code     int
	out, err string
}

func (c *runner) app(in io.Reader, out, err io.Writer) *cli.App {
	return &cli.App{In: in, Out: out, Err: err, Getenv: func(name string) string { return c.env[name] }}
}

// run runs the command with a text as its standard input.
func (c *runner) run(in string, args ...string) result {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	var out, err bytes.Buffer
	code := run(ctx, c.app(strings.NewReader(in), &out, &err), append(args, c.flags...))
	r := result{code: code, out: out.String(), err: err.String()}
	if code == cli.ExitOK {
		require.Regexp(c.t, `^(created the store [^\n]+\n)?(no resources found[^\n]*\n)?$`, r.err, "%v", args)
	} else {
		require.Regexp(c.t, `^(created the store [^\n]+\n)?ashlar: [^\n]+\n$`, r.err, "an error is one line: %v", args)
	}
	return r
}

// ok runs the command, requires success, and returns the output.
func (c *runner) ok(in string, args ...string) string {
	c.t.Helper()
	r := c.run(in, args...)
	require.Equal(c.t, cli.ExitOK, r.code, "%v: %s", args, r.err)
	return r.out
}

// watchRun is a running watch.
type watchRun struct {
	t     *testing.T
	stop  context.CancelFunc
	lines chan string
	code  chan int
}

func (c *runner) watch(args ...string) *watchRun {
	c.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	reader, writer := io.Pipe()
	w := &watchRun{t: c.t, stop: stop, lines: make(chan string, 10_000), code: make(chan int, 1)}
	var complaints bytes.Buffer
	go func() {
		code := run(ctx, c.app(strings.NewReader(""), writer, &complaints), append(append([]string{"watch"}, args...), c.flags...))
		if code != cli.ExitOK {
			c.t.Errorf("watch %v: exit code %d: %s", args, code, complaints.String())
		}
		_ = writer.Close()
		w.code <- code
	}()
	go func() {
		defer close(w.lines)
		for scanner := newScanner(reader); scanner.Scan(); {
			w.lines <- scanner.Text()
		}
	}()
	c.t.Cleanup(stop)
	return w
}

func newScanner(r io.Reader) *bufio.Scanner {
	scanner := bufio.NewScanner(r)
	scanner.Buffer(nil, 4<<20)
	return scanner
}

// next returns the next line, or "" after the last one.
func (w *watchRun) next() string {
	w.t.Helper()
	select {
	case line := <-w.lines:
		return line
	case <-time.After(waitTimeout):
		w.t.Fatal("the watch printed nothing")
		return ""
	}
}

// end waits for the watch to end.
func (w *watchRun) end() int {
	w.t.Helper()
	select {
	case code := <-w.code:
		return code
	case <-time.After(waitTimeout):
		w.t.Fatal("the watch did not end")
		return -1
	}
}

// configMap returns a document to apply.
func configMap(name, text string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %q}\ndata: {text: %q}\n", name, text)
}

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func lines(s string) []string {
	return strings.Split(strings.TrimSuffix(s, "\n"), "\n")
}
