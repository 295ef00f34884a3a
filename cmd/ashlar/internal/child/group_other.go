//go:build !unix

package child

import (
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
