package child

import "syscall"

// dieWithParent has the kernel kill the command when this process ends.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
