//go:build !unix

package faults

import (
	"os"
	"syscall"
)

var freeze, wake os.Signal // there is no way

func group() *syscall.SysProcAttr { return nil }
