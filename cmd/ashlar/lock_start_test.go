package main

import (
	"database/sql"
	"errors"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ashlar-dev/storage/cmd/ashlar/internal/child"
	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
)

// blockWrites blocks all writes to a store until the returned function is called.
func blockWrites(t *testing.T, url string) (unblock func()) {
	t.Helper()
	db, err := sql.Open("sqlite3", "file:"+strings.TrimPrefix(url, "sqlite://")+"?_txlock=immediate")
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	return func() { require.NoError(t, tx.Rollback()) }
}

// The command reports a holder only if the store has returned one. Otherwise the lock may be free or held.
func TestLockUnresponsiveStore(t *testing.T) {
	t.Parallel()
	url := fileURL(t)
	c := newRunner(t, url)
	c.ok("", "lock", "job", "--", "true")
	unblock := blockWrites(t, url)
	for _, wait := range []string{"1s", "100ms"} {
		refused := c.run("", "lock", "job", "--wait", wait, "--", "true")
		require.Equal(t, cli.ExitFailed, refused.code, refused.err)
		require.NotContains(t, refused.err, "held")
	}
	unblock()
}

// A condition that ends before a command starts prevents the start.
func TestLockConditionEnded(t *testing.T) {
	t.Parallel()
	closed := make(chan struct{})
	close(closed)
	for name, c := range map[string]child.Condition{"end": {End: closed}, "kill": {Kill: closed}, "revoked": {Revoked: closed}} {
		started := filepath.Join(t.TempDir(), "started")
		err := child.Run(exec.Command("sh", "-c", "trap '' TERM; touch "+started), c)
		require.ErrorIs(t, err, child.ErrNotStarted, name)
		require.NoFileExists(t, started, name)
	}
}

// The second signal kills the command and its processes, and releases the lock.
func TestLockSecondSignal(t *testing.T) {
	t.Parallel()
	url := fileURL(t)
	p := holding(t, url, `trap "echo terminated" TERM; echo held; (trap "" TERM; echo $(sh -c 'echo $PPID'); while :; do sleep 0.1; done) & while :; do wait; done`)
	pid, err := strconv.Atoi(p.next()) // of the subshell, which ignores SIGTERM
	require.NoError(t, err)
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) }) // it has ended, unless the test fails
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	require.Equal(t, "terminated", p.next())
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	require.Eventually(t, func() bool {
		return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
	}, waitTimeout, time.Millisecond, "the subshell still runs after the second signal")
	require.Equal(t, 128+int(syscall.SIGKILL), p.end(), p.err.String())
	newRunner(t, url).ok("", "lock", "job", "--wait", "0s", "--", "true")
}
