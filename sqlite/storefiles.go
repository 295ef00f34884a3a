package sqlite

import "fmt"

// storeFiles are the files that the connections of a store share. If another program replaces or deletes one of them,
// later writes would go to a file without a name, and two processes could write to one database without seeing each
// other's locks.
type storeFiles struct {
	paths [3]string
	ids   [3]fileID // zero for a file that does not exist on this system
}

// identifyFiles records the files of the database at path. An open connection has created them and keeps them.
func identifyFiles(path string) (f storeFiles, err error) {
	f.paths = [...]string{path, path + "-wal", path + "-shm"}
	for i, path := range f.paths {
		if f.ids[i], _, err = statFile(path); err != nil {
			return f, err
		}
	}
	return f, nil
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
func checkLinks(path string) error {
	_, links, err := statFile(path)
	if err == nil && links > 1 {
		err = fmt.Errorf("the file has %d names (hard links), and SQLite loses data if programs open it by different names: "+
			"copy the file, or delete the other names", links)
	}
	return err
}
