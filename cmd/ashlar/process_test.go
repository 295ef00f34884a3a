package main

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
	"github.com/ashlar-dev/storage/conformance/faults"
)

// asCommand makes the test binary run the command itself, so that tests can start it as a separate process with real signals and a real
// exit.
const asCommand = "ASHLAR_TEST_AS_COMMAND"

// commandEnv is the part of the environment that makes the test binary run the command. Package testcontainers, which the binary contains,
// reads all processes of the machine when a program starts; it finds none under a path that is no folder.
var commandEnv = []string{asCommand + "=1", "HOST_PROC=" + os.DevNull}

func actAsCommand() {
	if faults.ServeProcess() {
		os.Exit(0)
	}
	if os.Getenv(asCommand) != "" {
		main()
	}
	// Many tests wait for a timeout to pass. The flag takes precedence if it is given, because it is parsed later.
	if err := flag.Set("test.parallel", strconv.Itoa(max(parallelTests, runtime.GOMAXPROCS(0)))); err != nil {
		panic(err)
	}
}

// parallelTests is the minimum number of tests that run in parallel.
const parallelTests = 4

// process is the command as a separate process.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines chan string
	err   bytes.Buffer
	done  chan struct{}
}

// start starts the command. env is its complete environment.
func start(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	p := &process{t: t, cmd: exec.Command(self, args...), lines: make(chan string, 10_000), done: make(chan struct{})}
	p.cmd.Env = slices.Concat(env, commandEnv, []string{"GORACE=" + os.Getenv("GORACE")})
	p.cmd.Stderr = &p.err
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // without a terminal, even if the tests have one
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	go func() {
		defer close(p.done)
		for scanner := newScanner(out); scanner.Scan(); {
			p.lines <- scanner.Text()
		}
		close(p.lines)
		// The exit code is read later.
		_ = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		// It has ended, unless the test failed.
		_ = p.cmd.Process.Kill()
		<-p.done
	})
	return p
}

func (p *process) next() string {
	p.t.Helper()
	select {
	case line, ok := <-p.lines:
		if !ok {
			<-p.done
			p.t.Fatalf("the command has ended: %s", p.err.String())
		}
		return line
	case <-time.After(waitTimeout):
		p.t.Fatal("the command printed nothing")
		return ""
	}
}

// end waits for the process and returns its exit code, or -1 if a signal ended it.
func (p *process) end() int {
	p.t.Helper()
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(waitTimeout):
		p.t.Fatal("the command did not end")
		return -1
	}
}

func TestSignalsEndWatch(t *testing.T) {
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		p := start(t, []string{"ASHLAR_STORE=" + createStore(t, fileURL(t))}, "watch", "*")
		require.Equal(t, "synced", p.next())
		require.NoError(t, p.cmd.Process.Signal(signal))
		require.Equal(t, cli.ExitOK, p.end(), "%v: %s", signal, p.err.String())
		require.Empty(t, p.err.String())
	}
}

func TestTwoProcessesOnOneFile(t *testing.T) {
	t.Parallel()
	c := newRunner(t, fileURL(t))
	env := []string{"ASHLAR_STORE=" + c.env["ASHLAR_STORE"]}
	first := start(t, env, "watch", "core/ConfigMap", "-o", "json", "--show-cursor")
	what, cursor := eventName(t, first.next())
	require.Equal(t, "end", what)

	// The writers are separate processes, too.
	dir := t.TempDir()
	for _, text := range []string{"1", "2", "3"} {
		writer := start(t, env, "apply", "-f", write(t, dir, "a.yaml", configMap("a", text)))
		require.Equal(t, cli.ExitOK, writer.end(), writer.err.String())
	}
	require.Equal(t, cli.ExitOK, start(t, env, "delete", "core/ConfigMap", "a").end())
	for range 3 {
		what, _ = eventName(t, first.next())
		require.Equal(t, "upsert a", what)
	}
	what, _ = eventName(t, first.next())
	require.Equal(t, "delete a", what)
	require.NoError(t, first.cmd.Process.Kill())
	first.end()

	// Another process resumes at the end of the first one's snapshot.
	again := start(t, env, "watch", "core/ConfigMap", "-o", "name", "--cursor", cursor, "--limit", "4")
	for _, want := range []string{"upsert", "upsert", "upsert", "delete"} {
		require.Equal(t, want+" core/ConfigMap/a", again.next())
	}
	require.Equal(t, cli.ExitOK, again.end())
}

func TestDefaultStore(t *testing.T) {
	t.Parallel()
	home, data := t.TempDir(), t.TempDir()
	for file, env := range map[string][]string{
		filepath.Join(home, ".local", "share", "ashlar", "store.db"): {"HOME=" + home, "XDG_DATA_HOME=not/absolute"},
		filepath.Join(data, "ashlar", "store.db"):                    {"HOME=" + home, "XDG_DATA_HOME=" + data},
	} {
		p := start(t, env, "apply", "-f", filepath.Join(boutique, "platform.yaml"))
		require.Equal(t, cli.ExitOK, p.end(), p.err.String())
		require.FileExists(t, file)
		p = start(t, env, "get", "core/Namespace", "boutique", "-o", "name")
		require.Equal(t, "core/Namespace/boutique", p.next())
		require.Equal(t, cli.ExitOK, p.end())
		info, err := os.Stat(filepath.Dir(file))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o700), info.Mode().Perm(), "other users have no access")
	}
}

func TestBadSQLiteFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	corrupt := write(t, dir, "corrupt.db", "This is a letter to my aunt, not a database. "+string(bytes.Repeat([]byte("Dear aunt! "), 1000)))
	before, err := os.ReadFile(corrupt)
	require.NoError(t, err)
	for name, tc := range map[string]struct {
		url  string
		code int
	}{
		"corrupt file":        {"sqlite://" + corrupt, cli.ExitFailed},
		"a folder":            {"sqlite://" + dir, cli.ExitFailed},
		"no such folder":      {"sqlite://" + filepath.Join(dir, "no", "such", "folder", "x.db"), cli.ExitFailed},
		"missing, create=off": {"sqlite://" + filepath.Join(dir, "missing.db") + "?create=off", cli.ExitFailed},
		"unknown parameter":   {"sqlite://" + filepath.Join(dir, "x.db") + "?colour=red", cli.ExitUsage},
	} {
		r := newRunner(t, tc.url).run(configMap("a", ""), "apply", "-f", "-")
		require.Equal(t, tc.code, r.code, "%s: %s", name, r.err)
		t.Logf("%s: %s", name, r.err)
	}
	after, err := os.ReadFile(corrupt)
	require.NoError(t, err)
	require.True(t, bytes.Equal(before, after), "a file that is not a database is unchanged")
	_, err = os.Stat(filepath.Join(dir, "missing.db"))
	require.True(t, errors.Is(err, os.ErrNotExist))
}
