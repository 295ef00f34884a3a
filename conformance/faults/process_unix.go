//go:build unix

package faults

import "syscall"

// group puts a process into its own process group: if the parent dies, the kernel wakes and ends a stopped group.
func group() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
