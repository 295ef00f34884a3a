// Package linefile appends lines of text to a file, each by one write, so that lines of several processes do not mix. If only a part of a line
// was written, because the disk was full or the process died, the next line does not continue it: readers find one incomplete line.
package linefile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
)

// File is a file of lines. It is safe for concurrent use.
type File struct {
	mu   sync.Mutex
	out  io.Writer
	file *os.File // nil if out is no file of this package
	// isTorn reports that the last line may be incomplete.
	isTorn bool
}

// New returns a File that writes to out. Close does not close it.
func New(out io.Writer) *File { return &File{out: out} }

// Open opens a file for appending. A missing file is created, readable for its owner only.
func Open(path string) (*File, error) {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	return &File{out: file, file: file, isTorn: mayBeTorn(file)}, nil
}

// mayBeTorn reports whether the last line of a file may be incomplete. If the file cannot be read it may be: an empty line is harmless.
func mayBeTorn(file *os.File) bool {
	info, err := file.Stat()
	if err == nil && (!info.Mode().IsRegular() || info.Size() == 0) {
		return false
	}
	reader, err := os.Open(file.Name())
	if err != nil {
		return true
	}
	defer reader.Close()
	last := make([]byte, 1)
	if _, err := reader.Seek(-1, io.SeekEnd); err != nil {
		return true
	}
	_, err = reader.Read(last)
	return err != nil || last[0] != '\n'
}

// Append appends a line, which has no line end.
func (f *File) Append(line []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	text := make([]byte, 0, len(line)+2)
	if f.isTorn {
		text = append(text, '\n')
	}
	text = append(append(text, line...), '\n')
	n, err := f.out.Write(text)
	if n > 0 {
		f.isTorn = text[n-1] != '\n'
	}
	return err
}

// Sync makes the appended lines, and the existence of the file, durable.
func (f *File) Sync() error {
	if f.file == nil {
		return nil
	}
	if err := f.file.Sync(); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(f.file.Name()))
	if err != nil {
		return err
	}
	if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
		return fmt.Errorf("sync the directory: %w", err)
	}
	return nil
}

// Close closes the file.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file == nil {
		return nil
	}
	return f.file.Close()
}
