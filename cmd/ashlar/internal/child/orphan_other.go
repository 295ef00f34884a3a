//go:build unix && !linux

package child

import "syscall"

// dieWithParent does nothing: only Linux offers it.
func dieWithParent(*syscall.SysProcAttr) {}
