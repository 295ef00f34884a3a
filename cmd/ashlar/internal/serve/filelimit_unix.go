//go:build unix

package serve

import "syscall"

// fileLimit returns the number of file descriptors that the process may open.
func fileLimit() int {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil || limit.Cur > 3*maxConnections {
		return 3 * maxConnections
	}
	return int(limit.Cur)
}
