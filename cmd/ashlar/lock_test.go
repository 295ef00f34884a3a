package main

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
)

func TestLockRunsACommand(t *testing.T) {
	t.Parallel()
	c := newRunner(t, fileURL(t))
	require.Equal(t, "free, epoch 0\n", c.ok("", "lock", "job"))
	require.Equal(t, "in job 1\n", c.ok("in", "lock", "job", "--", "sh", "-c", `echo "$(cat) $ASHLAR_LOCK $ASHLAR_LOCK_EPOCH"`))
	require.Equal(t, "free, epoch 1\n", c.ok("", "lock", "job"))
	require.Equal(t, "free, epoch 0\n", c.ok("", "lock", "job", "-n", "other"))

	failed := c.run("", "lock", "job", "--", "sh", "-c", "exit 7")
	require.Equal(t, 7, failed.code)
	require.Equal(t, "ashlar: sh: exit status 7\n", failed.err)
	require.Equal(t, 128+int(syscall.SIGUSR1), c.run("", "lock", "job", "--", "sh", "-c", "kill -USR1 $$").code)
	require.Equal(t, cli.ExitFailed, c.run("", "lock", "job", "--", filepath.Join(t.TempDir(), "nothing")).code)
	require.Equal(t, "free, epoch 4\n", c.ok("", "lock", "job"))
	for _, wrong := range [][]string{
		{}, {"--", "true"}, {"job", "true"}, {"job", "other", "--", "true"}, {"job", "--"}, {"*", "--", "true"},
		{"job", "--ttl", "1ms", "--", "true"}, {"job", "--wait", "-1s", "--", "true"},
	} {
		require.Equal(t, cli.ExitUsage, c.run("", append([]string{"lock"}, wrong...)...).code, "%v", wrong)
	}
}

func TestLockExclusive(t *testing.T) {
	t.Parallel()
	url, inside := fileURL(t), filepath.Join(t.TempDir(), "inside")
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			for range 4 {
				p := start(t, []string{"ASHLAR_STORE=" + url, "PATH=" + os.Getenv("PATH")}, "lock", "job", "--", "sh", "-c", "mkdir "+inside+" && rmdir "+inside)
				if code := p.end(); code != cli.ExitOK {
					t.Errorf("exit code %d: %s", code, p.err.String())
				}
			}
		})
	}
	all.Wait()
	require.Equal(t, "free, epoch 12\n", newRunner(t, url).ok("", "lock", "job"))
}

// busyTTL is the time to live of locks that a test lets expire: short, but long enough to be renewed on a busy machine.
const busyTTL = "6s"

// holding starts a process that holds the lock until it receives a signal.
func holding(t *testing.T, url string, script string, flags ...string) *process {
	t.Helper()
	args := append([]string{"lock", "job"}, flags...)
	p := start(t, []string{"ASHLAR_STORE=" + url, "PATH=" + os.Getenv("PATH")}, append(args, "--", "sh", "-c", script)...)
	require.Equal(t, "held", p.next())
	return p
}

func TestLockHeld(t *testing.T) {
	t.Parallel()
	url := fileURL(t)
	c := newRunner(t, url)
	p := holding(t, url, `trap "echo ended; exit 0" TERM; echo held; while :; do sleep 0.1; done`, "--ttl", "10m")
	require.Regexp(t, "^held by .+/"+strconv.Itoa(p.cmd.Process.Pid)+" .*, epoch 1\n$", c.ok("", "lock", "job"))
	for _, wait := range []string{"0s", "1ns", "50ms"} {
		refused := c.run("", "lock", "job", "--wait", wait, "--", "true")
		require.Equal(t, cli.ExitConflict, refused.code, refused.err)
		require.Equal(t, "ashlar: lock \"job\" is held by another process\n", refused.err)
	}
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	require.Equal(t, "ended", p.next())
	require.Equal(t, cli.ExitOK, p.end(), p.err.String())
	c.ok("", "lock", "job", "--wait", "0s", "--", "true")
}

// A command does not outlive the tenure, even if it ignores SIGTERM.
func TestLockLost(t *testing.T) {
	t.Parallel()
	url := fileURL(t)
	p := holding(t, url, `trap "" TERM; echo held; echo $$; while :; do sleep 0.1; done`, "--ttl", busyTTL)
	var command int
	_, err := fmt.Sscan(p.next(), &command)
	require.NoError(t, err)
	db, err := sql.Open("sqlite3", "file:"+strings.TrimPrefix(url, "sqlite://")+"?_txlock=immediate")
	require.NoError(t, err)
	defer db.Close()
	tx, err := db.BeginTx(t.Context(), nil) // blocks all writes
	require.NoError(t, err)
	require.Eventually(t, func() bool { return errors.Is(syscall.Kill(command, 0), syscall.ESRCH) }, waitTimeout, 50*time.Millisecond)
	require.NoError(t, tx.Rollback()) // lets the command free the lock
	require.Equal(t, cli.ExitFailed, p.end())
	require.Contains(t, p.err.String(), "ashlar: sh: the lock was lost: ")
	newRunner(t, url).ok("", "lock", "job", "--", "true")
}

// A signal that ends this program is passed on to the command, whose exit code is returned.
func TestLockSignal(t *testing.T) {
	t.Parallel()
	// A program's commands inherit ignored signals, and the tests may run under nohup. Handled signals are not inherited.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(hangups) })
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		for script, code := range map[string]int{
			`trap "exit 3" TERM; echo held; while :; do sleep 0.1; done`: 3,
			`echo held; exec sleep 1000`:                                 128 + int(syscall.SIGTERM),
		} {
			t.Run(sig.String()+" "+strconv.Itoa(code), func(t *testing.T) {
				t.Parallel()
				url := fileURL(t)
				p := holding(t, url, script)
				require.NoError(t, p.cmd.Process.Signal(sig))
				require.Equal(t, code, p.end(), p.err.String())
				newRunner(t, url).ok("", "lock", "job", "--wait", "0s", "--", "true")
			})
		}
	}
}

// The exit code of a successful command is 0, even if the lock cannot be released at once.
func TestLockResignFails(t *testing.T) {
	t.Parallel()
	url, again := fileURL(t), filepath.Join(t.TempDir(), "again")
	p := holding(t, url, `echo held; while ! [ -e `+again+` ]; do sleep 0.1; done`, "--ttl", "1m")
	db, err := sql.Open("sqlite3", "file:"+strings.TrimPrefix(url, "sqlite://")+"?_txlock=immediate")
	require.NoError(t, err)
	defer db.Close()
	tx, err := db.BeginTx(t.Context(), nil) // blocks all writes
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(again, nil, 0o600))
	require.Equal(t, cli.ExitOK, p.end())
	require.Contains(t, p.err.String(), "ashlar: the lock becomes free only after 1m0s: ")
	require.NoError(t, tx.Rollback())
}
