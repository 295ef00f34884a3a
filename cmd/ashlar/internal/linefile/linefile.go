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
	mu     sync.Mutex
	out    io.Writer
	file   *os.File // nil if out is no file of this package
	reader *os.File // of the same file; nil if it cannot be read
	dir    string   // the directory of the file, which is not the one of a symbolic link to it
	// isTorn reports that the last line may be incomplete, as far as it is known without reader.
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
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		resolved = path // such as /dev/stdout of a container, a link to a pipe without a name
	}
	f := &File{out: file, file: file, dir: filepath.Dir(resolved)}
	if info, err := file.Stat(); err != nil || info.Mode().IsRegular() {
		f.isTorn = true // unless it can be read: an empty line is harmless
		f.reader, _ = os.Open(path)
	}
	return f, nil
}

// mayBeTorn reports whether the last line may be incomplete. Another process may have written it.
func (f *File) mayBeTorn() bool {
	if f.reader == nil {
		return f.isTorn
	}
	info, err := f.reader.Stat()
	if err == nil && info.Size() == 0 {
		return false
	}
	last := make([]byte, 1)
	if err == nil {
		_, err = f.reader.ReadAt(last, info.Size()-1)
	}
	return err != nil || last[0] != '\n'
}

// Append appends a line, which has no line end.
func (f *File) Append(line []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	text := make([]byte, 0, len(line)+2)
	if f.mayBeTorn() {
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
	dir, err := os.Open(f.dir)
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
	if f.reader != nil {
		_ = f.reader.Close() // nothing was written to it
	}
	return f.file.Close()
}
