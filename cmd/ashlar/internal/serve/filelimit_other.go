//go:build !unix

package serve

import "math"

// fileLimit returns a number that limits nothing: such systems do not limit the connections of a process.
func fileLimit() uint64 { return math.MaxInt32 }
