//go:build !unix

package child

import (
	"os"
	"os/exec"
	"syscall"
)

func together(*exec.Cmd) {}

func signal(cmd *exec.Cmd, sig syscall.Signal) { single(cmd, sig) }

// terminate does nothing: there is no such signal, and only killing is possible.
func terminate(*exec.Cmd) {}

// pausing never tells of anything: there is no such signal.
func pausing() (pauses, children <-chan os.Signal, forget func()) { return nil, nil, func() {} }

func halted(*exec.Cmd) bool { return false }

func pause(*exec.Cmd, <-chan os.Signal, func() bool) {}
