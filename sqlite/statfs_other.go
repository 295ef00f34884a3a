//go:build !linux

package sqlite

// networkFileSystem knows none here.
func networkFileSystem(string) string { return "" }

// freeBytes knows nothing here.
func freeBytes(string) (free uint64, known bool) { return 0, false }
