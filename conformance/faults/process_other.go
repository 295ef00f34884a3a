//go:build !unix

package faults

import "syscall"

func group() *syscall.SysProcAttr { return nil }
