//go:build unix

package main

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The commands of the operator's page succeed, in their order.
func TestOperatingPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/operating.md")
	require.NoError(t, err)
	script := "set -euo pipefail\n"
	for _, block := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllStringSubmatch(string(page), -1) {
		script += block[1]
	}
	require.Contains(t, script, "wait $server")
	require.Equal(t, strings.Count(string(page), "\n```sh\n")*2, strings.Count(string(page), "\n```"), "the page has a block that the test does not run")
	var listeners []net.Listener // they are closed together, so that their ports differ
	for _, address := range []string{"127.0.0.1:8502", "127.0.0.1:8500", "127.0.0.1:9090", "127.0.0.1:8602", "127.0.0.1:8600", "127.0.0.1:9190"} {
		l, err := net.Listen("tcp", "127.0.0.1:0") // a free port
		require.NoError(t, err)
		listeners = append(listeners, l)
		script = strings.ReplaceAll(script, address, l.Addr().String())
	}
	for _, l := range listeners {
		require.NoError(t, l.Close())
	}
	dir := t.TempDir()
	self, err := os.Executable()
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "bin"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "bin", "ashlar"), []byte("#!/bin/sh\n"+strings.Join(commandEnv, " ")+" exec "+self+" \"$@\"\n"), 0o700))
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a failed script leaves its server
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // it may have ended
		log, _ := os.ReadFile(filepath.Join(dir, "server.log"))
		t.Fatalf("%v: %s\n%s", err, out, log)
	}
	require.Contains(t, newRunner(t, "sqlite:"+filepath.Join(dir, "restored.db")).ok("", "list", "core/ConfigMap"), "settings", "restored from the backup")
	require.Contains(t, string(out), "by deployer")
	require.Contains(t, string(out), `"name": "deployer"`)
}
