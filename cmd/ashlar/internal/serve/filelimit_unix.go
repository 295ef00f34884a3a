//go:build unix

package serve

import (
	"math"
	"syscall"
)

// fileLimit returns the number of file descriptors that the process may open, or more if it is not limited.
func fileLimit() uint64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return math.MaxInt32
	}
	return uint64(limit.Cur)
}
