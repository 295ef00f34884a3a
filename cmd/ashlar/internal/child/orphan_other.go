//go:build unix && !linux

package child

import (
	"os/exec"
	"syscall"
)

// dieWithParent does nothing: only Linux supports it.
func dieWithParent(*syscall.SysProcAttr) {}

// isStopped assumes that the command obeys the terminal: only Linux reports a stopped child without waiting for its exit.
func isStopped(*exec.Cmd) bool { return true }
