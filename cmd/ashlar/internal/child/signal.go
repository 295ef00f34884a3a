package child

import (
	"os"
	"os/exec"
)

func signalProcess(cmd *exec.Cmd, sig os.Signal) {
	// The call fails if the process has ended, which is the desired state.
	_ = cmd.Process.Signal(sig)
}
