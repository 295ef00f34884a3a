package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
)

// serverProcess is ashlar serve as a separate process.
type serverProcess struct {
	t                 *testing.T
	cmd               *exec.Cmd
	done              chan struct{}
	grpc, http, admin string // addresses

	mu   sync.Mutex
	cond *sync.Cond
	log  []string // lines of its standard error, in JSON
}

// serveStore starts a server of a store, on free ports unless args set others, and waits until it listens.
func serveStore(t *testing.T, store string, args ...string) *serverProcess {
	t.Helper()
	return startServer(t, store, args...).listening()
}

// listening waits until the server listens.
func (s *serverProcess) listening() *serverProcess {
	s.t.Helper()
	var where struct{ Grpc, HTTP, Admin string }
	require.NoError(s.t, json.Unmarshal([]byte(s.waitForLog(`"msg":"listening"`)), &where))
	s.grpc, s.http, s.admin = where.Grpc, where.HTTP, where.Admin
	return s
}

// startServer starts a server without waiting.
func startServer(t *testing.T, store string, args ...string) *serverProcess {
	t.Helper()
	return startServerBy(t, nil, store, args...)
}

// startServerBy starts a server by a command that gets the server's command line as further arguments. nil starts it directly.
func startServerBy(t *testing.T, by []string, store string, args ...string) *serverProcess {
	t.Helper()
	all := []string{"serve", "--store", store, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--log-format", "json", "--log-level", "debug",
		"--ready-timeout", waitTimeout.String()} // a stall of the machine fails no probe
	if !strings.Contains(strings.Join(args, " "), "--types") {
		all = append(all, "--any-type")
	}
	return startCommandBy(t, by, slices.Concat(all, args)...)
}

// startCommand starts a server by a command line of its own.
func startCommand(t *testing.T, args ...string) *serverProcess {
	t.Helper()
	return startCommandBy(t, nil, args...)
}

func startCommandBy(t *testing.T, by []string, args ...string) *serverProcess {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	line := slices.Concat(by, []string{self}, args)
	s := &serverProcess{t: t, cmd: exec.Command(line[0], line[1:]...), done: make(chan struct{})}
	s.cond = sync.NewCond(&s.mu)
	s.cmd.Env = append(os.Environ(), commandEnv...)
	out, err := s.cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, s.cmd.Start())
	go func() {
		defer close(s.done)
		for scanner := newScanner(out); scanner.Scan(); {
			s.mu.Lock()
			s.log = append(s.log, scanner.Text())
			s.mu.Unlock()
			s.cond.Broadcast()
		}
		// The exit code is read later.
		_ = s.cmd.Wait()
		s.cond.Broadcast()
	}()
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill() // it has ended or is no longer needed
		<-s.done
		if t.Failed() {
			t.Log(strings.Join(s.log[max(0, len(s.log)-20):], "\n"))
		}
	})
	return s
}

// waitForLog waits for a line of the log that contains a text.
func (s *serverProcess) waitForLog(text string) string {
	s.t.Helper()
	deadline := time.Now().Add(waitTimeout)
	timer := time.AfterFunc(waitTimeout, s.cond.Broadcast)
	defer timer.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if i := slices.IndexFunc(s.log, func(line string) bool { return strings.Contains(line, text) }); i >= 0 {
			return s.log[i]
		}
		select {
		case <-s.done:
			s.t.Fatalf("the server has ended without logging %s: %s", text, strings.Join(s.log, "\n"))
		default:
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("the server did not log %s: %s", text, strings.Join(s.log, "\n"))
		}
		s.cond.Wait()
	}
}

// logText returns the whole log.
func (s *serverProcess) logText() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.log, "\n")
}

func (s *serverProcess) signal(sig syscall.Signal) {
	s.t.Helper()
	require.NoError(s.t, s.cmd.Process.Signal(sig))
}

// end waits for the end of the server and returns its exit code, or -1 if a signal ended it.
func (s *serverProcess) end() int {
	s.t.Helper()
	select {
	case <-s.done:
		return s.cmd.ProcessState.ExitCode()
	case <-time.After(waitTimeout):
		s.t.Fatalf("the server did not end: %s", s.logText())
		return -1
	}
}

// startedWrites is the metric that counts the received writes.
const startedWrites = `grpc_server_started_total{grpc_method="Write",grpc_service="ashlar.resource.v1.ResourceService",grpc_type="unary"}`

// get returns the response and the code at a path of the HTTP address.
func (s *serverProcess) get(path string) (int, string) {
	s.t.Helper()
	return getText(s.t, "http://"+s.http+path)
}

// getText returns the response and the code at a URL.
func getText(t *testing.T, url string) (int, string) {
	t.Helper()
	answer, err := http.Get(url)
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.StatusCode, string(text)
}

// waitForAnswer waits until the readiness probe at an address returns a code and a text. A probe fails also if the machine stalls for
// --ready-timeout.
func (s *serverProcess) waitForAnswer(address string, code int, text string) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		gotCode, got := getText(s.t, "http://"+address+"/readyz")
		return gotCode == code && got == text
	}, waitTimeout, 10*time.Millisecond, "%d %s", code, text)
}

// metric returns the value of a metric.
func (s *serverProcess) metric(name string) float64 {
	s.t.Helper()
	_, text := s.get("/metrics")
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			number, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			require.NoError(s.t, err)
			return number
		}
	}
	s.t.Fatalf("there is no metric %s in %s", name, text)
	return 0
}

// waitForMetric waits until a metric reaches a value.
func (s *serverProcess) waitForMetric(name string, value float64) {
	s.t.Helper()
	require.Eventually(s.t, func() bool { return s.metric(name) >= value }, waitTimeout, 10*time.Millisecond, name)
}

// kill ends the server like a power failure.
func (s *serverProcess) kill() {
	s.t.Helper()
	require.NoError(s.t, s.cmd.Process.Kill())
	s.end()
}

// restart starts a killed server again, at the same addresses.
func (s *serverProcess) restart(store string, args ...string) *serverProcess {
	s.t.Helper()
	return serveStore(s.t, store, append(args, "--listen", s.grpc, "--http", s.http)...)
}

// cli returns a runner whose commands use the server.
func (s *serverProcess) cli(t *testing.T) *runner {
	return &runner{t: t, env: map[string]string{}, flags: []string{"--server", s.grpc}}
}

func TestServeRejectsUnsafeConfig(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"all interfaces":      {[]string{"--any-type", "--listen", ":0"}, "other machines can reach this address"},
		"any address":         {[]string{"--any-type", "--listen", "0.0.0.0:0"}, "other machines can reach this address"},
		"any IPv6 address":    {[]string{"--any-type", "--listen", "[::]:0"}, "other machines can reach this address"},
		"HTTP":                {[]string{"--any-type", "--http", "0.0.0.0:0"}, "--http 0.0.0.0:0: other machines can reach this address"},
		"probes":              {[]string{"--any-type", "--admin", "0.0.0.0:0"}, "--admin 0.0.0.0:0: other machines can reach this address"},
		"TLS for everyone":    {[]string{"--any-type", "--listen", "0.0.0.0:0", "--tls-cert", "x.pem", "--tls-key", "x.pem"}, "may do everything: set --tokens or --client-ca"},
		"no types":            {nil, "no types to serve"},
		"types and all types": {[]string{"--any-type", "--types", dir}, "are mutually exclusive"},
		"half a certificate":  {[]string{"--any-type", "--tls-cert", "x.pem"}, "--tls-cert and --tls-key must be set together"},
		"clients without TLS": {[]string{"--any-type", "--client-ca", "x.pem"}, "--client-ca needs --tls-cert"},
		"no address":          {[]string{"--any-type", "--listen", "nowhere"}, "missing port"},
		"no gRPC":             {[]string{"--any-type", "--listen", ""}, "--listen needs an address"},
		"log format":          {[]string{"--any-type", "--log-format", "xml"}, "text or json"},
		"log level":           {[]string{"--any-type", "--log-level", "loud"}, "debug, info, warn or error"},
		"another server":      {[]string{"--any-type", "--server", "127.0.0.1:1"}, "serve does not support --server"},
	} {
		r := newRunner(t, memoryURL()).run("", append([]string{"serve"}, tc.args...)...)
		require.Equal(t, cli.ExitUsage, r.code, "%s: %s", name, r.err)
		require.Contains(t, r.err, tc.want, name)
	}
	for name, args := range map[string][]string{
		"no such token file":   {"--any-type", "--tokens", dir + "/none.yaml"},
		"no such certificate":  {"--any-type", "--tls-cert", dir + "/none.pem", "--tls-key", dir + "/none.pem"},
		"no such directory":    {"--types", dir + "/none"},
		"no descriptor sets":   {"--types", dir},
		"no such store":        {"--any-type", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--store", "sqlite://" + dir + "/none.db?create=off"},
		"an address of others": {"--any-type", "--insecure", "--listen", "192.0.2.1:1", "--http", ""},
	} {
		r := newRunner(t, memoryURL()).run("", append([]string{"serve"}, args...)...)
		require.Equal(t, cli.ExitFailed, r.code, "%s: %s", name, r.err)
	}
}

func TestServeInsecure(t *testing.T) {
	t.Parallel()
	s := serveStore(t, memoryURL(), "--insecure", "--listen", ":0")
	s.signal(syscall.SIGTERM)
	require.Equal(t, cli.ExitOK, s.end())
}

// A second signal ends the server at once, even during calls.
func TestServeSecondSignal(t *testing.T) {
	t.Parallel()
	store := fileURL(t)
	s := serveStore(t, store, "--drain", "1h")
	c := s.cli(t)
	c.ok("", "apply", "-f", boutique)
	release := lockFile(t, store)
	defer release()
	begun := s.metric(startedWrites)
	writer := start(t, nil, "apply", "-f", write(t, t.TempDir(), "a.yaml", configMap("a", "1")), "--server", s.grpc)
	s.waitForMetric(startedWrites, begun+1)
	s.signal(syscall.SIGTERM)
	s.waitForLog(`"msg":"draining"`)
	require.Eventually(t, func() bool { // signals that arrive together are one signal to the process
		_ = s.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		select {
		case <-s.done:
			return true
		default:
			return false
		}
	}, waitTimeout, 10*time.Millisecond)
	require.Equal(t, -1, s.end())
	require.Equal(t, cli.ExitFailed, writer.end())
}

// Calls that are active when the server receives the signal are answered. New calls are rejected, and watches end so that clients reconnect
// elsewhere.
func TestServeDrains(t *testing.T) {
	t.Parallel()
	store := fileURL(t)
	s := serveStore(t, store, "--drain", "1h")
	s.cli(t).ok("", "apply", "-f", boutique)
	watch := rawWatch(t, s.grpc)
	release := lockFile(t, store)
	begun := s.metric(startedWrites)
	writer := start(t, nil, "apply", "-f", write(t, t.TempDir(), "a.yaml", configMap("a", "1")), "--server", s.grpc)
	s.waitForMetric(startedWrites, begun+1)
	s.signal(syscall.SIGTERM)
	s.waitForLog(`"msg":"draining"`)
	release()
	require.Equal(t, "core/ConfigMap default/a created", writer.next())
	require.Equal(t, cli.ExitOK, writer.end())
	require.Equal(t, "Unavailable: the server is shutting down: retry, or connect to another server", watch.end(t))
	require.Equal(t, cli.ExitOK, s.end())
	require.Equal(t, "core/ConfigMap/a\n", newRunner(t, store).ok("", "get", "core/ConfigMap", "a", "-o", "name"))
	require.NotContains(t, s.logText(), `"level":"ERROR"`)
	_, drained, _ := strings.Cut(s.logText(), `"msg":"draining"`)
	call, watchEnd := strings.Index(drained, "ResourceService/Write"), strings.Index(drained, "ResourceService/WatchList")
	require.Positive(t, call)
	require.Greater(t, watchEnd, call, "a watch must end after the calls, so that it can return their writes")
}

// A server without drain time does not wait for calls that cannot end.
func TestServeDrainTimeout(t *testing.T) {
	t.Parallel()
	store := fileURL(t)
	s := serveStore(t, store, "--drain", "0s")
	s.cli(t).ok("", "apply", "-f", boutique)
	release := lockFile(t, store)
	defer release()
	begun := s.metric(startedWrites)
	writer := start(t, nil, "apply", "-f", write(t, t.TempDir(), "a.yaml", configMap("a", "1")), "--server", s.grpc)
	s.waitForMetric(startedWrites, begun+1)
	s.signal(syscall.SIGINT)
	s.end()
	require.Equal(t, cli.ExitFailed, writer.end())
	require.Contains(t, bytes.NewBuffer(writer.err.Bytes()).String(), "ashlar: ")
}
