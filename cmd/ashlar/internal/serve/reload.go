package serve

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

// reloader reads files again while the server runs.
type reloader struct {
	logger  *slog.Logger
	signals <-chan os.Signal // each makes it read all files
	sources []*source
}

// source is a file, or several ones, that can be read again while the server runs.
type source struct {
	name  string
	paths []string // files and directories
	load  func() error
	read  [sha256.Size]byte // the fingerprint of the last read contents
	err   error             // of the last load after the first one
}

// add reads files that can be read again later.
func (r *reloader) add(name string, load func() error, paths ...string) error {
	f := &source{name: name, load: load, paths: slices.DeleteFunc(paths, func(path string) bool { return path == "" })}
	f.read = f.fingerprint() // before the contents are read: a later change is a difference
	r.sources = append(r.sources, f)
	return load()
}

// fingerprint returns a hash of the contents.
func (f *source) fingerprint() (sum [sha256.Size]byte) {
	hash := sha256.New()
	for _, path := range f.paths {
		files := []string{path}
		if entries, err := os.ReadDir(path); err == nil {
			files = nil
			for _, e := range entries {
				files = append(files, filepath.Join(path, e.Name()))
			}
		}
		for _, name := range files {
			text, err := os.ReadFile(name)
			fmt.Fprintf(hash, "%s\x00%d\x00%v\x00", name, len(text), err)
			_, _ = hash.Write(text) // a hash returns no error
		}
	}
	return [sha256.Size]byte(hash.Sum(nil))
}

// settleTime is the time between a change of a file and the read of the files: a certificate and its key change together.
const settleTime = 100 * time.Millisecond

// run reads the files again: all at each signal, and those that have changed after an event of the file system. If a file is invalid, the
// previous contents stay in use.
func (r *reloader) run(ctx context.Context) error {
	events, failures, stop := r.watch(ctx)
	defer stop()
	settled := time.After(0) // a file may have changed before it was watched
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.signals:
			r.reload(ctx, func(*source, [sha256.Size]byte) bool { return true })
		case event := <-events:
			if settled == nil && concerns(filepath.Clean(event.Name), r.sources) {
				settled = time.After(settleTime)
			}
		case err := <-failures:
			r.logger.WarnContext(ctx, "changes of files may have been missed: all files are compared", "error", err)
			if settled == nil {
				settled = time.After(settleTime)
			}
		case <-settled:
			settled = nil
			r.reload(ctx, func(f *source, now [sha256.Size]byte) bool { return now != f.read })
		}
	}
}

// reload reads the sources that are due, and then those again whose contents were refused: types and rules refer to each other.
func (r *reloader) reload(ctx context.Context, due func(f *source, now [sha256.Size]byte) bool) {
	loaded := false
	for _, f := range r.sources {
		if now := f.fingerprint(); due(f, now) {
			f.read, f.err = now, f.load()
			loaded = loaded || f.err == nil
			r.report(ctx, f.name, f.err)
		}
	}
	for _, f := range r.sources {
		if loaded && f.err != nil {
			if f.err = f.load(); f.err == nil {
				r.report(ctx, f.name, nil)
			}
		}
	}
}

// report logs the result of a reload.
func (r *reloader) report(ctx context.Context, name string, err error) {
	if err != nil {
		r.logger.ErrorContext(ctx, "not reloaded, the previous contents stay in use", "what", name, "error", err)
		return
	}
	r.logger.InfoContext(ctx, "reloaded", "what", name)
}

// watch watches the directories of the files: programs replace a file instead of writing it. If that fails, only signals reload the files.
func (r *reloader) watch(ctx context.Context) (events <-chan fsnotify.Event, failures <-chan error, stop func()) {
	unnoticed := func(err error) {
		r.logger.WarnContext(ctx, "changes of files are not noticed: send SIGHUP after a change", "error", err)
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		unnoticed(err)
		return nil, nil, func() {}
	}
	for _, f := range r.sources {
		for _, path := range f.paths {
			dir := filepath.Dir(path)
			if info, err := os.Stat(path); err == nil && info.IsDir() {
				dir = path
			}
			if err := watcher.Add(dir); err != nil {
				unnoticed(err)
			}
		}
	}
	return watcher.Events, watcher.Errors, func() { _ = watcher.Close() } // it has nothing to write
}

// concerns reports whether a changed file can belong to one of the sources. Kubernetes replaces the files of a volume by changing a link whose
// name begins with "..".
func concerns(changed string, sources []*source) bool {
	if strings.HasPrefix(filepath.Base(changed), "..") {
		return true
	}
	return slices.ContainsFunc(sources, func(f *source) bool {
		return slices.ContainsFunc(f.paths, func(path string) bool {
			path = filepath.Clean(path)
			return path == changed || path == filepath.Dir(changed)
		})
	})
}
