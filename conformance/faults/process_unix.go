//go:build unix

package faults

import "syscall"

// group makes a process a group of its own: if the parent dies, the kernel wakes and ends a group that is stopped.
func group() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
