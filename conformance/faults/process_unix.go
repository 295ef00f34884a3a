//go:build unix

package faults

import (
	"os"
	"syscall"
)

var freeze, wake os.Signal = syscall.SIGSTOP, syscall.SIGCONT

// group makes a process a group of its own: if the parent dies, the kernel wakes and ends a group that is stopped.
func group() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
