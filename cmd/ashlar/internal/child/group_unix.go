//go:build unix

package child

import (
	"os"
	"os/exec"
	ossignal "os/signal"
	"syscall"
)

// setGroup makes the command a group of its own, so that it can be ended with all that it starts. The system stops a group that uses a
// terminal unless it is the one in the foreground, also if its standard input is something else (ssh and sudo ask at /dev/tty): where this
// process has a terminal, the command stays in the group of this process.
func setGroup(cmd *exec.Cmd) {
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
		signalProcess(cmd, sig)
		return
	}
	// It fails if nothing of the group is left, which is what was wanted.
	_ = syscall.Kill(-cmd.Process.Pid, sig)
}

// notifyPause returns a channel that gets the signals by which terminals stop this process, and one that gets those that tell of its children.
func notifyPause() (pauses, children <-chan os.Signal, forget func()) {
	all, others := make(chan os.Signal, 1), make(chan os.Signal, 1)
	if !ossignal.Ignored(syscall.SIGTSTP) {
		ossignal.Notify(all, syscall.SIGTSTP)
		ossignal.Notify(others, syscall.SIGCHLD)
	}
	return all, others, func() {
		ossignal.Stop(all)
		ossignal.Stop(others)
	}
}

// suspend reports whether the command stands still after this process was told to stop. Where the command has the same terminal, that tells it,
// too; but it may ignore that, and so does the system where no shell could wake it (a group that is orphaned, as with ssh -t).
func suspend(cmd *exec.Cmd) bool {
	if !cmd.SysProcAttr.Setpgid {
		return isStopped(cmd)
	}
	signal(cmd, syscall.SIGSTOP)
	return true
}

// pauseProcess stops this process, as the signal would have done, and returns when somebody has woken it. The command stands still by then. One that
// does not hold any more what it ran under is killed, if it can be before it has gone on.
func pauseProcess(cmd *exec.Cmd, pauses <-chan os.Signal, holds func() bool) {
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
	case cmd.SysProcAttr.Setpgid: // else the terminal wakes it
		signal(cmd, syscall.SIGCONT)
	}
}
