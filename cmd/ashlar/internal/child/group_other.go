//go:build !unix

package child

import (
	"os"
	"os/exec"
	"syscall"
)

func setGroup(*exec.Cmd) {}

func signal(cmd *exec.Cmd, sig syscall.Signal) { signalProcess(cmd, sig) }

// terminate does nothing: the system has no such signal, so the command can only be killed.
func terminate(*exec.Cmd) {}

// notifyPause returns nil channels: the system has no such signals.
func notifyPause() (pauses, children <-chan os.Signal, stop func()) { return nil, nil, func() {} }

func suspend(*exec.Cmd) bool { return false }

func pauseProcess(*exec.Cmd, <-chan os.Signal, func() bool) {}
