//go:build !unix

package serve

// fileLimit returns the number of connections that the process may open, which such systems do not limit.
func fileLimit() int { return 3 * maxConnections }
