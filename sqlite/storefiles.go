package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// storeFiles are the files that the connections of a store share. If another program replaces or deletes one of them,
// later writes would go to a file without a name, and two processes could write to one database without seeing each
// other's locks.
type storeFiles struct {
	paths [3]string
	ids   [3]fileID // zero for a file that does not exist on this system
}

// newStoreFiles records the identity of the database at path before it is opened, so that check detects a file that was
// replaced meanwhile.
func newStoreFiles(path string, id fileID) storeFiles {
	return storeFiles{paths: [...]string{path, path + "-wal", path + "-shm"}, ids: [3]fileID{id}}
}

// recordShared records the -wal and -shm files. An open connection has created them and keeps them.
func (f *storeFiles) recordShared() (err error) {
	for i := 1; i < len(f.paths) && err == nil; i++ {
		f.ids[i], _, err = statFile(f.paths[i])
	}
	return err
}

// check returns an error if a file is no longer the one that was recorded.
func (f *storeFiles) check() error {
	for i, recorded := range f.ids {
		if recorded == (fileID{}) {
			continue
		}
		id, _, err := statFile(f.paths[i])
		if err != nil {
			return fmt.Errorf("check the files of the store: %w", err)
		}
		if id == recorded {
			continue
		}
		event, repair := "replaced by another file", ""
		if id == (fileID{}) {
			event = "deleted"
		}
		if i == 0 {
			repair = "delete the old -wal and -shm files, "
		}
		return fmt.Errorf("%w: %s was %s: close the store in all processes, %sand open it again", errReplaced, f.paths[i], event, repair)
	}
	return nil
}

// checkLinks returns an error for a database file with several names. Processes that open it by different names would
// not share the -wal file, and would overwrite each other's changes.
func checkLinks(names uint64) error {
	if names > 1 {
		return fmt.Errorf("the file has %d names (hard links), and SQLite loses data if programs open it by different names: "+
			"copy the file, or delete the other names", names)
	}
	return nil
}

// emptyWAL reports whether the database at path has no -wal file, or an empty one.
func emptyWAL(path string) bool {
	info, err := os.Stat(path + "-wal")
	return errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0
}

// deletedWAL returns the error of an Open that found an empty -wal file and then read beyond its end. Only the -shm file
// of an open handle refers to commits in a -wal file, so the handle has one that was deleted.
func deletedWAL(path string, err error) error {
	return fmt.Errorf("%w: %s-wal was deleted, and another handle has commits in it: close the store in all processes, and open it again: %w",
		errReplaced, path, err)
}
