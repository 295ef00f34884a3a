// Package child runs a program that may only run while a condition holds.
package child

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// Condition is what a command may run under. Its channels are closed once; a nil one never is.
type Condition struct {
	End   <-chan struct{} // closed when the command is to end
	Lost  <-chan struct{} // closed when the condition is about to be lost
	Grace time.Duration   // how long after that the command is killed
	// Holds reports, after this process and the command have stood still, whether the condition still holds.
	Holds func() bool
}

// Run runs a command until it exits, and returns what [exec.Cmd.Wait] does. When the condition says so, the command is told to end
// (SIGTERM), and if that was because the condition is lost it is killed after the grace time. Where the system can do that, signals reach
// what the command started as well, unless this process has a terminal; if this process is killed, the command is killed with it; and
// if this process is told to stop (SIGTSTP, by Ctrl-Z), the command stops first, and goes on only if the condition still holds.
func Run(cmd *exec.Cmd, c Condition) error {
	together(cmd)
	pauses, forget := pausing()
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
	end, lost := c.End, c.Lost
	told := false
	var kill <-chan time.Time
	for {
		select {
		case err := <-exited:
			if told {
				signal(cmd, syscall.SIGKILL) // what it started may have outlived it
			}
			return err
		case <-pauses:
			pause(cmd, pauses, c.Holds)
		case <-end:
			end, told = nil, true
			terminate(cmd)
		case <-lost:
			lost, told = nil, true
			terminate(cmd)
			kill = time.After(c.Grace)
		case <-kill:
			signal(cmd, syscall.SIGKILL)
		}
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

func single(cmd *exec.Cmd, sig os.Signal) {
	// It fails if the process has ended, which is what was wanted.
	_ = cmd.Process.Signal(sig)
}
