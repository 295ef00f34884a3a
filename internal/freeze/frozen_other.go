//go:build !unix

package freeze

import (
	"errors"
	"os"
)

// Possible says whether this system can stop a process.
const Possible = false

// Stop has a child of this process stand still, and returns when it does. Nobody may wait for its end meanwhile.
func Stop(*os.Process) error { return errors.ErrUnsupported }

// Wake has a process go on.
func Wake(*os.Process) error { return errors.ErrUnsupported }
