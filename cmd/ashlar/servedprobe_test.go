package main

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
)

// A server whose store answers reads but takes no writes is not ready, unless probes do not write.
func TestServeReadyRequiresWrites(t *testing.T) {
	t.Parallel()
	store := fileURL(t)
	writes := serveStore(t, store, "--admin", "127.0.0.1:0", "--write-probe", "1ms", "--ready-timeout", "1s")
	reads := serveStore(t, store, "--admin", "127.0.0.1:0", "--write-probe", "0")
	writes.waitForAnswer(writes.admin, http.StatusOK, "ready\n")
	before := writes.cli(t).ok("", "revisions", "-o", "name")
	release := lockFile(t, store)
	defer release()
	writes.waitForAnswer(writes.admin, http.StatusServiceUnavailable, "not ready: the store takes no writes\n")
	code, text := getText(t, "http://"+reads.admin+"/readyz")
	require.Equal(t, http.StatusOK, code, text)
	release()
	writes.waitForAnswer(writes.admin, http.StatusOK, "ready\n")
	require.Equal(t, before, writes.cli(t).ok("", "revisions", "-o", "name"), "a probe changes no resource")
}

// A server reports to systemd that it serves, and that it is about to end.
func TestServeNotifiesSystemd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	require.NoError(t, err)
	defer socket.Close()
	next := func() string {
		require.NoError(t, socket.SetReadDeadline(time.Now().Add(waitTimeout)))
		b := make([]byte, 100)
		n, err := socket.Read(b)
		require.NoError(t, err)
		return string(b[:n])
	}
	t.Setenv("NOTIFY_SOCKET", path)
	s := startServer(t, fileURL(t))
	require.Equal(t, "READY=1", next())
	s.listening()
	s.signal(syscall.SIGTERM)
	require.Equal(t, "STOPPING=1", next())
	require.Equal(t, cli.ExitOK, s.end())
}

// A server listens at unix sockets, also where a killed server has left them, but not where another one listens.
func TestServeUnixSockets(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store := fileURL(t)
	sockets := []string{"--listen", "unix:" + dir + "/grpc", "--http", "unix:" + dir + "/http", "--admin", "unix:" + dir + "/admin"}
	s := serveStore(t, store, sockets...)
	require.Equal(t, "unix:"+dir+"/grpc", s.grpc)
	s.cli(t).ok(configMap("a", "1"), "apply", "-f", "-")
	for path, socket := range map[string]string{"/api/core/v1/ConfigMap/a": "http", "/readyz": "admin"} {
		transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", dir+"/"+socket) }}
		answer, err := (&http.Client{Transport: transport}).Get("http://localhost" + path)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		transport.CloseIdleConnections()
		require.Equal(t, http.StatusOK, answer.StatusCode, path)
	}
	second := startServer(t, store, sockets...)
	require.Equal(t, cli.ExitFailed, second.end())
	require.Contains(t, second.logText(), "address already in use")
	s.kill()
	serveStore(t, store, sockets...).cli(t).ok("", "get", "core/ConfigMap", "a")
	require.Equal(t, cli.ExitUsage, newRunner(t, store).run("", "serve", "--any-type", "--listen", "unix:").code)
}
