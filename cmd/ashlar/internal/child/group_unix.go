//go:build unix

package child

import (
	"os"
	"os/exec"
	ossignal "os/signal"
	"syscall"
)

// setGroup puts the command into its own process group, so that a signal reaches every process it starts. The system stops a background
// group that reads from a terminal, even if its standard input is something else (ssh and sudo read from /dev/tty). If this process has a
// terminal, the command therefore stays in the group of this process.
func setGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	dieWithParent(cmd.SysProcAttr)
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR|syscall.O_NOCTTY, 0)
	if cmd.SysProcAttr.Setpgid = err != nil; err == nil {
		tty.Close()
	}
}

// terminate sends SIGTERM to the command. A stopped command receives it when SIGCONT wakes it.
func terminate(cmd *exec.Cmd) {
	signal(cmd, syscall.SIGTERM)
	signal(cmd, syscall.SIGCONT)
}

func signal(cmd *exec.Cmd, sig syscall.Signal) {
	if !cmd.SysProcAttr.Setpgid {
		signalProcess(cmd, sig)
		return
	}
	// The call fails if the group has no process left, which is the desired state.
	_ = syscall.Kill(-cmd.Process.Pid, sig)
}

// notifyPause returns a channel for the signals that terminals send to stop this process, and a channel for the signals about its
// children.
func notifyPause() (pauses, children <-chan os.Signal, stop func()) {
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

// suspend reports whether the command is stopped after this process received SIGTSTP. It stops a command in a group of its own. A command
// on the same terminal has received the signal, too, but may ignore it. The system also ignores it for an orphaned group, which no shell
// could wake (ssh -t).
func suspend(cmd *exec.Cmd) bool {
	if !cmd.SysProcAttr.Setpgid {
		return isStopped(cmd)
	}
	signal(cmd, syscall.SIGSTOP)
	return true
}

// pauseProcess stops this process, as the signal would have done, and returns after SIGCONT. The command is already stopped. If its
// condition no longer holds, the command is killed, if possible before it resumes.
func pauseProcess(cmd *exec.Cmd, pauses <-chan os.Signal, holds func() bool) {
	// Kill may return before this process has stopped.
	woken := make(chan os.Signal, 1)
	ossignal.Notify(woken, syscall.SIGCONT)
	defer ossignal.Stop(woken)
	stopped := syscall.Kill(os.Getpid(), syscall.SIGSTOP) == nil
	for stopped {
		select {
		case <-woken:
			stopped = false
		case <-pauses: // stopped again after SIGCONT; a pending stop signal discards SIGCONT
			stopped = syscall.Kill(os.Getpid(), syscall.SIGSTOP) == nil
		}
	}
	switch {
	case !holds():
		signal(cmd, syscall.SIGKILL)
	case cmd.SysProcAttr.Setpgid: // otherwise the terminal wakes it
		signal(cmd, syscall.SIGCONT)
	}
}
