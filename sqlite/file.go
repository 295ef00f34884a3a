package sqlite

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/ashlar-dev/storage"
)

// resolvePath returns the absolute path of the file without symbolic links. All processes use this path, so they share
// the files beside it.
func resolvePath(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real, nil
	}
	folder, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return "", fmt.Errorf("find the folder of the database: %w", err)
	}
	return filepath.Join(folder, filepath.Base(path)), nil
}

// checkFile creates a missing file if create is set, and returns the identity of the file. It returns an error for a
// file that SQLite would reject with an unclear message, or would not reject.
func checkFile(path string, create bool) (id fileID, err error) {
	if name := networkFileSystem(filepath.Dir(path)); name != "" {
		return id, fmt.Errorf("the file is on a network file system (%s), where SQLite loses data when several machines write: "+
			"use a local disk, or another backend", name)
	}
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		if !create {
			return id, fmt.Errorf("%w: %w, and create=off forbids creating it", storage.ErrNoStore, err)
		}
		file, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	}
	if err != nil {
		return id, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return id, err
	}
	if !info.Mode().IsRegular() {
		return id, fmt.Errorf("%s is not a regular file", path)
	}
	id, links, err := statFile(path)
	if err != nil {
		return id, err
	}
	if err := checkLinks(links); err != nil {
		return id, err
	}
	magic := []byte("SQLite format 3\x00")
	head := make([]byte, len(magic))
	n, err := io.ReadFull(file, head)
	if errors.Is(err, io.EOF) {
		return id, nil // the file is empty before the first write
	}
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return id, err
	}
	// Another process that is creating the file may have written only zeros so far. SQLite rejects other files of
	// zeros.
	if !bytes.Equal(head[:n], magic) && !bytes.Equal(head[:n], make([]byte, n)) {
		return id, errNoDatabase
	}
	return id, nil
}

// syncFolder makes the names of new files durable, which the SQLite library omits.
func syncFolder(path string) error {
	if runtime.GOOS == "windows" {
		return nil // Windows cannot sync folders
	}
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer folder.Close()
	if err := folder.Sync(); err != nil {
		return fmt.Errorf("sync the folder of the database: %w", err)
	}
	return nil
}
