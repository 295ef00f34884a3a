package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"

	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
)

// A command does not outlive a killed holder.
func TestLockHolderKilled(t *testing.T) {
	t.Parallel()
	url := fileURL(t)
	p := holding(t, url, `echo held; exec sleep 1000`, "--ttl", busyTTL)
	require.NoError(t, p.cmd.Process.Kill())
	require.Equal(t, -1, p.end()) // and the command's end of the pipe is closed
	newRunner(t, url).ok("", "lock", "job", "--", "true")
}

// stopped waits until a process is stopped, or blocks in the kernel because its child was stopped before it could run its program.
func stopped(t *testing.T, pid int) {
	t.Helper()
	require.Eventually(t, func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err == nil && (strings.Contains(string(stat), ") T ") || strings.Contains(string(stat), ") D "))
	}, waitTimeout, time.Millisecond)
}

// Ctrl-Z stops the command together with the program that renews the lock. After a wake-up the command continues only if the lock is still
// held.
func TestLockStopped(t *testing.T) {
	t.Parallel()
	ticking := func(url, ttl string) (p *process, stop func()) {
		p = holding(t, url, `trap "" TERM; echo held; echo $$; while :; do echo tick; sleep 0.01; done`, "--ttl", ttl)
		var command int
		_, err := fmt.Sscan(p.next(), &command)
		require.NoError(t, err)
		return p, func() {
			require.NoError(t, p.cmd.Process.Signal(syscall.SIGTSTP))
			stopped(t, command)
			stopped(t, p.cmd.Process.Pid)
			for len(p.lines) > 0 {
				<-p.lines
			}
		}
	}
	p, stop := ticking(fileURL(t), "10m") // the lock does not expire
	for range 2 {
		stop()
		require.NoError(t, p.cmd.Process.Signal(syscall.SIGCONT))
		for range 3 {
			require.Equal(t, "tick", p.next())
		}
	}
	require.NoError(t, p.cmd.Process.Kill())
	require.Equal(t, -1, p.end())

	url := fileURL(t)
	p, stop = ticking(url, "10s")
	stop()
	newRunner(t, url).ok("", "lock", "job", "--", "true") // once the lock has expired
	for len(p.lines) > 0 {
		<-p.lines // the output that was in the pipe
	}
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGCONT))
	require.Equal(t, cli.ExitFailed, p.end())
	for line := range p.lines {
		t.Errorf("the command continued without the lock: %s", line)
	}
	require.Contains(t, p.err.String(), "ashlar: sh: the lock was lost: ")
}

// A stopped command receives signals like any other.
func TestLockStoppedCommandEnds(t *testing.T) {
	t.Parallel()
	p := holding(t, fileURL(t), `trap "exit 3" TERM; echo held; echo $$; kill -STOP $$; while :; do sleep 0.1; done`)
	var command int
	_, err := fmt.Sscan(p.next(), &command)
	require.NoError(t, err)
	stopped(t, command)
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	require.Equal(t, 3, p.end(), p.err.String())
}

// Ctrl-Z stops neither the command nor the program that renews the lock if no shell could wake them, as in a session of ssh -t. The test is
// repeated with a longer time to live if the lock was lost, because the machine may have been too slow to renew it.
func TestLockTerminalWithoutShell(t *testing.T) {
	t.Parallel()
	for ttl := 6 * time.Second; !keepsLockAfterCtrlZ(t, ttl); ttl *= 4 {
		require.Less(t, ttl, time.Minute, "the lock was lost while the command runs")
	}
}

// keepsLockAfterCtrlZ returns false if the lock was lost within 1.5 times its time to live.
func keepsLockAfterCtrlZ(t *testing.T, ttl time.Duration) bool {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	ours, theirs, err := pty.Open()
	require.NoError(t, err)
	defer ours.Close()
	defer theirs.Close()
	url, again := fileURL(t), write(t, t.TempDir(), "again", "")
	cmd := exec.Command(self, "lock", "job", "--ttl", ttl.String(), "--", "sh", "-c", `echo held; while [ -e $0 ]; do sleep 0.1; done; echo done`, again)
	cmd.Env = append([]string{"ASHLAR_STORE=" + url, "PATH=" + os.Getenv("PATH")}, commandEnv...)
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 3}
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill() }() // it has ended, unless the test fails
	lines := newScanner(out)
	require.True(t, lines.Scan())
	_, err = ours.WriteString("\x1a")
	require.NoError(t, err)
	refused := newRunner(t, url).run("", "lock", "job", "--wait", (ttl * 3 / 2).String(), "--", "true")
	if refused.code == cli.ExitOK {
		return false
	}
	require.Equal(t, cli.ExitConflict, refused.code, refused.err)
	require.NoError(t, os.Remove(again))
	require.True(t, lines.Scan())
	require.Equal(t, "done", lines.Text())
	require.NoError(t, cmd.Wait())
	return true
}
