//go:build unix

package freeze

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Possible says whether this system can stop a process.
const Possible = true

// Stop freezes a child of this process and returns when it is frozen. No other goroutine may wait for its end at the same time.
func Stop(p *os.Process) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return fmt.Errorf("stop process %d: %w", p.Pid, err)
	}
	for {
		var status unix.WaitStatus
		_, err := unix.Wait4(p.Pid, &status, unix.WUNTRACED, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("wait until process %d is frozen: %w", p.Pid, err)
		case status.Stopped():
			return nil
		default:
			return fmt.Errorf("process %d ended instead of being frozen", p.Pid)
		}
	}
}

// Wake continues a process.
func Wake(p *os.Process) error {
	if err := p.Signal(syscall.SIGCONT); err != nil {
		return fmt.Errorf("wake process %d: %w", p.Pid, err)
	}
	return nil
}
