//go:build !linux

package sqlite

// networkFileSystem knows none here.
func networkFileSystem(string) string { return "" }
