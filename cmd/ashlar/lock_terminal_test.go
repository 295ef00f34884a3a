//go:build unix

package main

import (
	"context"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"
)

// A command can read from the terminal, as ssh and sudo do, even if its standard input is something else.
func TestLockCommandReadsTerminal(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	ours, theirs, err := pty.Open()
	require.NoError(t, err)
	defer ours.Close()
	defer theirs.Close()
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, self, "lock", "job", "--", "sh", "-c", `read x </dev/tty; echo "got $x"`)
	cmd.Env = append([]string{"ASHLAR_STORE=" + fileURL(t), "PATH=" + os.Getenv("PATH")}, commandEnv...)
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 3}
	cmd.WaitDelay = waitTimeout // for processes of a killed command
	_, err = ours.WriteString("hello\n")
	require.NoError(t, err)
	out, err := cmd.Output()
	require.NoError(t, err)
	require.Equal(t, "got hello\n", string(out))
}
