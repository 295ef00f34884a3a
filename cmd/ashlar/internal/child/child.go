// Package child runs a command only while a condition holds.
package child

import (
	"errors"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// ErrNotStarted is returned if the condition ended before the command could start.
var ErrNotStarted = errors.New("the command was not started: its condition had already ended")

// Condition limits how long a command may run. Each of its channels is closed at most once; a nil channel is never closed.
type Condition struct {
	End     <-chan struct{} // closed to request the end of the command
	Kill    <-chan struct{} // closed to kill the command
	Revoked <-chan struct{} // closed shortly before the condition ends
	Grace   time.Duration   // time from Revoked until the command is killed
	// Holds reports whether the condition still holds. Run calls it when this process continues after SIGTSTP.
	Holds func() bool
}

// Run runs a command until it exits and returns the error of [exec.Cmd.Wait], or [ErrNotStarted] if the condition has already ended. When
// End or Revoked is closed, the command receives SIGTERM; after Revoked it is killed once the grace time has passed.
//
// If the system supports it:
//   - Signals also reach the processes that the command started, unless this process has a terminal.
//   - If this process is killed, the command is killed as well.
//   - If this process receives SIGTSTP (Ctrl-Z), the command stops first, and it resumes only if the condition still holds. On Linux this
//     process does not stop if the command does not, for example in an orphaned group that no shell could wake.
func Run(cmd *exec.Cmd, c Condition) error {
	if isClosed(c.End) || isClosed(c.Kill) || isClosed(c.Revoked) {
		return ErrNotStarted
	}
	setGroup(cmd)
	pauses, children, stopNotify := notifyPause()
	defer stopNotify()
	started, exited := make(chan error, 1), make(chan error, 1)
	go func() {
		// The kernel kills the command when the thread that started it ends, so this thread must live as long as the command.
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
	end, kill, revoked := c.End, c.Kill, c.Revoked
	signalled, pausePending := false, false
	var grace <-chan time.Time
	tryPause := func() {
		if pausePending && suspend(cmd) {
			pausePending = false
			pauseProcess(cmd, pauses, c.Holds)
		}
	}
	for {
		select {
		case err := <-exited:
			if signalled {
				signal(cmd, syscall.SIGKILL) // processes that the command started may have outlived it
			}
			return err
		case <-pauses:
			pausePending = true
			tryPause()
		case <-children: // the command may have stopped
			tryPause()
		case <-end:
			end, signalled = nil, true
			terminate(cmd)
		case <-revoked:
			revoked, signalled = nil, true
			terminate(cmd)
			grace = time.After(c.Grace)
		case <-kill:
			kill, signalled = nil, true
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

// Code returns the exit code for err, an error of Run: 128 plus the signal number if a signal ended the command, as shells do, and -1 if
// the command was not started.
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
