// Package child runs a program that may only run while a condition holds.
package child

import (
	"errors"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// ErrNotStarted says that there was no time left in which the command could have run.
var ErrNotStarted = errors.New("it was not started")

// Condition is what a command may run under. Its channels are closed once; a nil one never is.
type Condition struct {
	End     <-chan struct{} // closed when the command is to end
	Kill    <-chan struct{} // closed when the command is to be killed
	Revoked <-chan struct{} // closed when the condition is about to be lost
	Grace   time.Duration   // how long after that the command is killed
	// Holds reports, after this process and the command have stood still, whether the condition still holds.
	Holds func() bool
}

// Run runs a command until it exits, and returns what [exec.Cmd.Wait] does, or [ErrNotStarted] if the condition was over before. When the
// condition says so, the command is told to end (SIGTERM), and if that was because the condition is lost it is killed after the grace time.
// Where the system can do that, signals reach what the command started as well, unless this process has a terminal; if this process is
// killed, the command is killed with it; and if this process is told to stop (SIGTSTP, by Ctrl-Z), the command stops first, and goes on only
// if the condition still holds. On Linux this process does not stop if the command does not, as where nobody could wake them.
func Run(cmd *exec.Cmd, c Condition) error {
	if isClosed(c.End) || isClosed(c.Kill) || isClosed(c.Revoked) {
		return ErrNotStarted
	}
	setGroup(cmd)
	pauses, children, forget := notifyPause()
	defer forget()
	started, exited := make(chan error, 1), make(chan error, 1)
	go func() {
		// The system kills the command when the thread that started it ends: it has to be one that lives as long.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			exited <- cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	end, kill, lost := c.End, c.Kill, c.Revoked
	told, asked := false, false
	var grace <-chan time.Time
	paused := func() {
		if asked && suspend(cmd) {
			asked = false
			pauseProcess(cmd, pauses, c.Holds)
		}
	}
	for {
		select {
		case err := <-exited:
			if told {
				signal(cmd, syscall.SIGKILL) // what it started may have outlived it
			}
			return err
		case <-pauses:
			asked = true
			paused()
		case <-children: // one may stand still
			paused()
		case <-end:
			end, told = nil, true
			terminate(cmd)
		case <-lost:
			lost, told = nil, true
			terminate(cmd)
			grace = time.After(c.Grace)
		case <-kill:
			kill, told = nil, true
			signal(cmd, syscall.SIGKILL)
		case <-grace:
			signal(cmd, syscall.SIGKILL)
		}
	}
}

// isClosed reports whether a channel is closed.
func isClosed(closed <-chan struct{}) bool {
	select {
	case <-closed:
		return true
	default:
		return false
	}
}

// Code returns the exit code that err, the answer of Run, stands for: 128 and the number of the signal that ended the command, as shells do
// it, and -1 if it was not even started.
func Code(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case !errors.As(err, &exit):
		return -1
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return exit.ExitCode()
}
