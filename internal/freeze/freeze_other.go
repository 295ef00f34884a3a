//go:build !unix

package freeze

import (
	"errors"
	"os"
)

// Possible says whether this system can stop a process.
const Possible = false

// Stop freezes a child of this process and returns when it is frozen. No other goroutine may wait for its end at the same time.
func Stop(*os.Process) error { return errors.ErrUnsupported }

// Wake continues a process.
func Wake(*os.Process) error { return errors.ErrUnsupported }
