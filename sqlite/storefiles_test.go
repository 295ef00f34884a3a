package sqlite

import (
	"context"
	"errors"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

func renameFile(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func removeFiles(t *testing.T, paths ...string) {
	t.Helper()
	for _, path := range paths {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// A store whose files were replaced or deleted answers nothing, except that an eventual read notices it after checkInterval: acknowledged writes
// would be lost, and reads outdated.
func TestChangedFiles(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(t *testing.T, path, backup string)
		file   string // suffix of the changed file
		event  string // regular expression
		after  string // names in the store after it was closed and opened again
	}{
		"a backup moved over the file": {
			func(t *testing.T, path, backup string) { renameFile(t, backup, path) }, "", "replaced", "old ",
		},
		"a symbolic link to the moved file": { // SQLite would open the moved file with another -wal file
			func(t *testing.T, path, _ string) {
				renameFile(t, path, path+"-moved")
				if err := os.Symlink(path+"-moved", path); err != nil {
					t.Fatal(err)
				}
			}, "", "replaced", "",
		},
		"all files deleted": {
			func(t *testing.T, path, _ string) { removeFiles(t, path, path+"-wal", path+"-shm") }, "", "deleted", "",
		},
		"-shm deleted": { // the feed's first read of the fence may be opening its connection, which creates the file anew
			func(t *testing.T, path, _ string) { removeFiles(t, path+"-shm") }, "-shm", "(deleted|replaced)", "new old ",
		},
		"-wal replaced": {
			func(t *testing.T, path, _ string) {
				content, err := os.ReadFile(path + "-wal")
				if err != nil {
					t.Fatal(err)
				}
				writeFile(t, path+"-copy", string(content))
				renameFile(t, path+"-copy", path+"-wal")
			}, "-wal", "replaced", "new old ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := newPath(t)
			s, err := New(t.Context(), path, nil)
			if err != nil {
				t.Fatal(err)
			}
			old := fixture.Write(t, s, resource("old", 1))
			backup := path + ".backup"
			if err := s.Backup(t.Context(), backup); err != nil {
				t.Fatal(err)
			}
			w := fixture.WatchChanges(t, s)
			wantUpsert(t, w, fixture.Write(t, s, resource("new", 1))) // the feed has its connection
			c.change(t, path, backup)
			message := regexp.MustCompile(regexp.QuoteMeta(path+c.file) + " was " + c.event)
			check := func(call string, err error) {
				t.Helper()
				if !errors.Is(err, errReplaced) || !message.MatchString(err.Error()) {
					t.Errorf("%s: got error %v, expected one that names %s and says %q", call, err, path+c.file, c.event)
				}
			}
			_, err = s.WriteCAS(t.Context(), resource("lost", 1))
			check("a write", err)
			check("a deletion", s.DeleteCAS(t.Context(), old.Id, old.Version))
			_, err = s.Read(t.Context(), storage.StrongConsistency, old.Id)
			check("a read", err)
			fixture.Eventually(t, "eventual reads fail", func() bool {
				_, err = s.Read(t.Context(), storage.EventualConsistency, old.Id)
				return err != nil
			})
			check("an eventual read", err)
			pool := s.handle.readers
			pool.lastCheck.Store(int64(time.Since(pool.start)))
			_, err = s.Read(t.Context(), storage.StrongConsistency, old.Id)
			check("a read soon after a successful check", err)
			_, err = s.Read(t.Context(), storage.EventualConsistency, old.Id)
			check("an eventual read after a failed check", err)
			_, err = s.List(t.Context(), storage.StrongConsistency, fixture.AllTypes, fixture.AllTenancies, "")
			check("a list", err)
			check("a fence", s.handle.SetFence(t.Context(), nil))
			check("a backup", s.Backup(t.Context(), path+".second"))
			_, err = w.Next(t.Context())
			check("a watch", err)
			if !errors.Is(err, storage.ErrWatchClosed) {
				t.Errorf("the watch ended with %v, expected ErrWatchClosed", err)
			}
			if err := s.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
			if c.file == "" {
				_, _ = os.Remove(path+"-wal"), os.Remove(path+"-shm")
			}
			again := open(t, path, nil)
			if got := names(t, again); got != c.after {
				t.Errorf("opened again, the store has %q, expected %q", got, c.after)
			}
			fixture.Write(t, again, resource("later", 1))
		})
	}
}

// Closing a store whose files were replaced must not checkpoint or delete the -wal file that another store uses now.
func TestCloseAfterReplacement(t *testing.T) {
	t.Parallel()
	for _, suffixes := range [][]string{{"", "-wal", "-shm"}, {"-shm"}} {
		path := newPath(t)
		first, err := New(t.Context(), path, nil)
		if err != nil {
			t.Fatal(err)
		}
		fixture.Write(t, first, resource("first", 1))
		for _, suffix := range suffixes {
			removeFiles(t, path+suffix)
		}
		second, err := New(t.Context(), path, nil)
		if err != nil {
			t.Fatal(err)
		}
		fixture.Write(t, second, resource("second", 1))
		if err := errors.Join(second.Close(), first.Close()); err != nil {
			t.Fatal(err)
		}
		if got := names(t, open(t, path, nil)); !strings.HasSuffix(got, "second ") {
			t.Errorf("after %q were removed, the store has %q, expected the second write", suffixes, got)
		}
	}
}

// A file that is replaced during a commit has lost the commit, so the caller must not get success.
func TestFileReplacedDuringCommit(t *testing.T) {
	t.Parallel()
	s, f := openFaulty(t)
	fixture.Write(t, s, resource("a", 1))
	replace := func() { removeFiles(t, s.Path()) }
	f.onCommit.Store(&replace)
	if _, err := s.WriteCAS(t.Context(), resource("b", 1)); !errors.Is(err, storage.ErrInconsistent) || !errors.Is(err, errReplaced) {
		t.Errorf("got error %v, expected ErrInconsistent, because the commit is in a deleted file", err)
	}
}

// A file with several names is refused before SQLite creates a second -wal file for it.
func TestHardLinks(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s := open(t, path, nil)
	fixture.Write(t, s, resource("a", 1))
	link := path + ".link"
	if err := os.Link(path, link); err != nil {
		t.Fatal(err) // a skipped test looks like a passed one
	}
	if other, err := New(t.Context(), link, nil); err == nil {
		t.Fatal("opened a file with two names", other.Close())
	} else if !strings.Contains(err.Error(), "2 names (hard links)") || !strings.Contains(err.Error(), link) {
		t.Errorf("got error %v, expected one about hard links", err)
	}
	if _, err := os.Stat(link + "-wal"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the refused open left a -wal file: %v", err)
	}
	fixture.Write(t, s, resource("b", 1)) // the first name still works
	removeFiles(t, link)
	if got := names(t, open(t, path, nil)); got != "a b " {
		t.Errorf("the store has %q, expected a and b", got)
	}
}

// A fence or a note that was committed to a replaced file is lost, so the caller must not get success.
func TestFileReplacedDuringFence(t *testing.T) {
	t.Parallel()
	for name, write := range map[string]func(*Backend) error{
		"a fence": func(s *Backend) error {
			target := "elsewhere"
			return s.handle.SetFence(t.Context(), &target)
		},
		"a note": func(s *Backend) error {
			_, err := s.handle.WriteNote(t.Context(), "mover", []byte("value"), "")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, f := openFaulty(t)
			replace := func() { removeFiles(t, s.Path()) }
			f.onCommit.Store(&replace)
			if err := write(s); !errors.Is(err, storage.ErrInconsistent) || !errors.Is(err, errReplaced) {
				t.Errorf("got error %v, expected ErrInconsistent, because the commit is in a deleted file", err)
			}
		})
	}
}

// Open fails if the path leads to another file after SQLite has opened the first one. The writes of this handle would
// go to the file without a name.
func TestFileReplacedDuringOpen(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(testing.TB) string{"a store": createStore, "a new file": newPath} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path, backup := prepare(t), createStore(t)
			f := newFaultyFS(t)
			var once sync.Once
			replace := func() { once.Do(func() { renameFile(t, backup, path) }) }
			f.onOpen.Store(&replace)
			s, err := New(t.Context(), path, &Options{vfs: t.Name()})
			if err == nil {
				t.Fatal("opened a file that was replaced meanwhile", s.Close())
			}
			if !errors.Is(err, errReplaced) || !strings.Contains(err.Error(), path) {
				t.Errorf("got error %v, expected one that says that %s was replaced", err, path)
			}
			if got := names(t, open(t, path, nil)); got != "" {
				t.Errorf("the new file has %q, expected an empty store", got)
			}
		})
	}
}

// If the -wal file of an open store was deleted, another Open fails: it would create a new -wal file, and the commits
// in the deleted one would be lost.
func TestDeletedWAL(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	first, err := New(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	fixture.Write(t, first, resource("first", 1))
	removeFiles(t, path+"-wal")
	if second, err := New(t.Context(), path, nil); err == nil {
		t.Error("opened a store whose -wal file was deleted while it was open", second.Close())
	} else if !errors.Is(err, errReplaced) || !strings.Contains(err.Error(), path+"-wal was deleted") {
		t.Errorf("got error %v, expected one that says that %s-wal was deleted", err, path)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	fixture.Write(t, open(t, path, nil), resource("later", 1))
}

// deadlineProbe is a context that closes channel read when a call asks for its deadline.
type deadlineProbe struct {
	context.Context
	once sync.Once
	read chan struct{}
}

func (p *deadlineProbe) Deadline() (time.Time, bool) {
	p.once.Do(func() { close(p.read) })
	return p.Context.Deadline()
}

// An eventual read that has waited for a connection does not rely on a check that became too old meanwhile.
func TestCheckAgesDuringWait(t *testing.T) {
	t.Parallel()
	s := open(t, newPath(t), &Options{Readers: 1})
	res := fixture.Write(t, s, resource("a", 1))
	pool := s.handle.readers
	c, err := pool.take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	probe := &deadlineProbe{Context: t.Context(), read: make(chan struct{})}
	failed := make(chan error)
	go func() {
		_, err := s.handle.Get(probe, storage.EventualConsistency, key.Of(res.Id))
		failed <- err
	}()
	<-probe.read // the read waits for the connection
	renameFile(t, s.Path(), s.Path()+".moved")
	pool.lastCheck.Store(int64(time.Since(pool.start) - checkInterval))
	pool.give(c)
	if err := <-failed; !errors.Is(err, errReplaced) {
		t.Errorf("got error %v, expected one that says that the file was deleted", err)
	}
}

// Handles that open the store by a link to a missing file, and by its name, share the lock file.
func TestLinkToMissingFile(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	if err := os.Symlink(path, path+"-link"); err != nil {
		t.Fatal(err)
	}
	linked, direct := open(t, path+"-link", nil), open(t, path, nil)
	if got, want := linked.handle.lockFile.path, direct.handle.lockFile.path; got != want {
		t.Errorf("the lock file is %s, expected %s", got, want)
	}
}
