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

// Run runs a command until it exits, and returns what [exec.Cmd.Wait] does. When end is closed, the command is told to end (SIGTERM). When
// lost is closed, too, and it is killed after a grace time. Where the system can do that, signals reach what the command started as well,
// unless its standard input is a terminal; and if this process is killed, the command is killed with it.
func Run(cmd *exec.Cmd, end, lost <-chan struct{}, grace time.Duration) error {
	together(cmd)
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
	var kill <-chan time.Time
	for {
		select {
		case err := <-exited:
			if end == nil || lost == nil {
				signal(cmd, syscall.SIGKILL) // what it started may have outlived it
			}
			return err
		case <-end:
			end = nil
			signal(cmd, syscall.SIGTERM)
		case <-lost:
			lost = nil
			signal(cmd, syscall.SIGTERM)
			kill = time.After(grace)
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
