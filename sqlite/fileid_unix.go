//go:build unix

package sqlite

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"
)

// statFile returns the identity of the file at path, or the zero fileID if there is none, and the number of its names. It does not follow a
// symbolic link: SQLite names the -wal file after the target, so a link to the moved database leads to another -wal file.
func statFile(path string) (id fileID, links uint64, err error) {
	for {
		switch id, links, err = identify(path); {
		case err == nil:
			return id, links, nil
		case errors.Is(err, fs.ErrNotExist):
			return fileID{}, 0, nil
		case !errors.Is(err, unix.EINTR):
			return fileID{}, 0, &fs.PathError{Op: "stat", Path: path, Err: err}
		}
	}
}
