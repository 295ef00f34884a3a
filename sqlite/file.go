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
)

// resolvePath returns the one path by which all processes name the file: absolute and without symbolic links, so that the files
// beside it are the same too.
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
		return "", fmt.Errorf("the database's folder: %w", err)
	}
	return filepath.Join(folder, filepath.Base(path)), nil
}

// checkFile says in plain words what SQLite would say in its own, or not at all.
func checkFile(path string, create bool) error {
	if name := networkFileSystem(filepath.Dir(path)); name != "" {
		return fmt.Errorf("the file lies on a network file system (%s), where SQLite loses data when several machines write: "+
			"use a local disk, or another backend", name)
	}
	file, err := os.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && create:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w, and create=off forbids making it", err)
	case err != nil:
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", path)
	}
	magic := []byte("SQLite format 3\x00")
	head := make([]byte, len(magic))
	n, err := io.ReadFull(file, head)
	if errors.Is(err, io.EOF) {
		return nil // empty, as SQLite makes it before the first write
	}
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	// Zeros are there for a moment while another process makes the file; otherwise SQLite will refuse them.
	if !bytes.Equal(head[:n], magic) && !bytes.Equal(head[:n], make([]byte, n)) {
		return errNoDatabase
	}
	return nil
}

// syncFolder makes the names of new files durable, which the driver leaves out.
func syncFolder(path string) error {
	if runtime.GOOS == "windows" {
		return nil // folders cannot be synced there
	}
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer folder.Close()
	if err := folder.Sync(); err != nil {
		return fmt.Errorf("sync the database's folder: %w", err)
	}
	return nil
}
