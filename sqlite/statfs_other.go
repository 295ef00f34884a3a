//go:build !linux

package sqlite

// networkFileSystem recognizes no file system on this platform.
func networkFileSystem(string) string { return "" }

// freeBytes is not implemented on this platform.
func freeBytes(string) (free uint64, known bool) { return 0, false }
