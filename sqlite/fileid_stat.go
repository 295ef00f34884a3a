//go:build unix

package sqlite

import "golang.org/x/sys/unix"

// identifyByStat reads the identity with all other metadata of the file.
func identifyByStat(path string) (fileID, uint64, error) {
	var s unix.Stat_t
	err := unix.Lstat(path, &s)
	return fileID{uint64(s.Dev), s.Ino}, uint64(s.Nlink), err
}
