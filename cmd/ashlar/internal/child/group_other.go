//go:build !unix

package child

import (
	"os"
	"os/exec"
	"syscall"
)

func setGroup(*exec.Cmd) {}

func signal(cmd *exec.Cmd, sig syscall.Signal) { signalProcess(cmd, sig) }

// terminate does nothing: there is no such signal, and only killing is possible.
func terminate(*exec.Cmd) {}

// notifyPause never tells of anything: there is no such signal.
func notifyPause() (pauses, children <-chan os.Signal, forget func()) { return nil, nil, func() {} }

func suspend(*exec.Cmd) bool { return false }

func pauseProcess(*exec.Cmd, <-chan os.Signal, func() bool) {}
