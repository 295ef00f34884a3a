//go:build !unix

package child

import (
	"os"
	"os/exec"
	"syscall"
)

func together(*exec.Cmd) {}

func signal(cmd *exec.Cmd, sig syscall.Signal) {
	if sig == syscall.SIGTERM {
		return // there is no such signal: only killing is possible
	}
	single(cmd, sig)
}

// pausing never tells of anything: there is no such signal.
func pausing() (<-chan os.Signal, func()) { return nil, func() {} }

func pause(*exec.Cmd, <-chan os.Signal, func() bool) {}
