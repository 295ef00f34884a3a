//go:build unix

package child

import (
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/term"
)

// together makes the command a group of its own, so that it can be ended with all that it starts. A group that reads from a terminal is
// stopped by the system unless it is the one in the foreground: there it stays in the group of this process.
func together(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	dieWithParent(cmd.SysProcAttr)
	in, ok := cmd.Stdin.(*os.File)
	cmd.SysProcAttr.Setpgid = !ok || !term.IsTerminal(int(in.Fd()))
}

func signal(cmd *exec.Cmd, sig syscall.Signal) {
	if !cmd.SysProcAttr.Setpgid {
		single(cmd, sig)
		return
	}
	// It fails if nothing of the group is left, which is what was wanted.
	_ = syscall.Kill(-cmd.Process.Pid, sig)
}
