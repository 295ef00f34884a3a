//go:build unix

package child

import (
	"os"
	"os/exec"
	ossignal "os/signal"
	"syscall"
)

// together makes the command a group of its own, so that it can be ended with all that it starts. The system stops a group that uses a
// terminal unless it is the one in the foreground, also if its standard input is something else (ssh and sudo ask at /dev/tty): where this
// process has a terminal, the command stays in the group of this process.
func together(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	dieWithParent(cmd.SysProcAttr)
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR|syscall.O_NOCTTY, 0)
	if cmd.SysProcAttr.Setpgid = err != nil; err == nil {
		tty.Close()
	}
}

// terminate tells the command to end. One that stands still hears of it when it is woken.
func terminate(cmd *exec.Cmd) {
	signal(cmd, syscall.SIGTERM)
	signal(cmd, syscall.SIGCONT)
}

func signal(cmd *exec.Cmd, sig syscall.Signal) {
	if !cmd.SysProcAttr.Setpgid {
		single(cmd, sig)
		return
	}
	// It fails if nothing of the group is left, which is what was wanted.
	_ = syscall.Kill(-cmd.Process.Pid, sig)
}

// pausing returns a channel that gets the signals by which terminals stop this process.
func pausing() (<-chan os.Signal, func()) {
	all := make(chan os.Signal, 1)
	if !ossignal.Ignored(syscall.SIGTSTP) {
		ossignal.Notify(all, syscall.SIGTSTP)
	}
	return all, func() { ossignal.Stop(all) }
}

// pause stops the command and this process, as the signal would have done, and returns when somebody has woken them. A command that does not
// hold any more what it ran under is killed, if it can be before it has gone on.
func pause(cmd *exec.Cmd, pauses <-chan os.Signal, holds func() bool) {
	own := cmd.SysProcAttr.Setpgid
	if own { // else the terminal stops it, and wakes it
		signal(cmd, syscall.SIGSTOP)
	}
	// The call may return before this process stands still.
	woken := make(chan os.Signal, 1)
	ossignal.Notify(woken, syscall.SIGCONT)
	defer ossignal.Stop(woken)
	standing := syscall.Kill(os.Getpid(), syscall.SIGSTOP) == nil
	for standing {
		select {
		case <-woken:
			standing = false
		case <-pauses: // it was woken and stopped again, and a signal that stops has the system forget the one that wakes
			standing = syscall.Kill(os.Getpid(), syscall.SIGSTOP) == nil
		}
	}
	switch {
	case !holds():
		signal(cmd, syscall.SIGKILL)
	case own:
		signal(cmd, syscall.SIGCONT)
	}
}
