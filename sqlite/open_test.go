package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ncruces/go-sqlite3"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// openDirect opens a SQLite file without a store.
func openDirect(t testing.TB, path string) *sqlite3.Conn {
	t.Helper()
	db, err := sqlite3.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

func execSQL(t testing.TB, db *sqlite3.Conn, sql string) {
	t.Helper()
	if err := db.Exec(sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// Queries about the tables of a store.
const (
	countRows   = "SELECT count(*) FROM log"
	readVersion = "SELECT version FROM meta"
)

// queryInt returns the number in the first row of a query, or 0 without a row.
func queryInt(t testing.TB, db *sqlite3.Conn, query string) (n int64) {
	t.Helper()
	if err := db.BusyTimeout(fixture.Timeout); err != nil {
		t.Fatal(err)
	}
	s, _, err := db.Prepare(query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	if s.Step() {
		n = s.ColumnInt64(0)
	}
	if err := errors.Join(s.Err(), s.Close()); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// createStore returns the path of a new, closed store.
func createStore(t testing.TB) string {
	t.Helper()
	path := newPath(t)
	s, err := New(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func writeFile(t testing.TB, path, content string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Open returns a clear error of one line for each of these files and does not change it.
func TestOpenErrors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		path    func(t *testing.T) string
		options Options
		is      error
		says    string
	}{
		"no folder": {
			path: func(t *testing.T) string { return filepath.Join(t.TempDir(), "absent", "store.db") },
			is:   fs.ErrNotExist, says: "folder",
		},
		"no folder and create=off": {
			path:    func(t *testing.T) string { return filepath.Join(t.TempDir(), "absent", "store.db") },
			options: Options{NoCreate: true}, is: storage.ErrNoStore, says: "folder",
		},
		"a folder": {
			path: func(t *testing.T) string { return t.TempDir() },
			says: "not a regular file",
		},
		"no file and create=off": {
			path: newPathFor, options: Options{NoCreate: true},
			is: storage.ErrNoStore, says: "create=off",
		},
		"an empty file and create=off": {
			path:    func(t *testing.T) string { return writeFile(t, newPath(t), "") },
			options: Options{NoCreate: true}, is: storage.ErrNoStore, says: "create=off",
		},
		"a text": {
			path: func(t *testing.T) string { return writeFile(t, newPath(t), strings.Repeat("not a database ", 1000)) },
			says: "not a SQLite database",
		},
		"zeros": {
			path: func(t *testing.T) string { return writeFile(t, newPath(t), strings.Repeat("\x00", 8192)) },
			is:   sqlite3.NOTADB, says: "not a SQLite database",
		},
		"a short text": {
			path: func(t *testing.T) string { return writeFile(t, newPath(t), "short") },
			says: "not a SQLite database",
		},
		"damaged": {
			path: func(t *testing.T) string {
				path := createStore(t)
				content, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				for i := 100; i < len(content); i++ {
					content[i] = 0xaa
				}
				return writeFile(t, path, string(content))
			},
			is: sqlite3.CORRUPT, says: "malformed",
		},
		"another program's": {
			path: func(t *testing.T) string {
				path := newPath(t)
				execSQL(t, openDirect(t, path), "CREATE TABLE theirs (a)")
				return path
			},
			says: "another program",
		},
		"a -lock file of another program": {
			path: func(t *testing.T) string {
				path := createStore(t)
				writeFile(t, path+"-lock", "pid 4711")
				return path
			},
			says: "-lock is a file of another program",
		},
		"a folder for the -lock file": {
			path: func(t *testing.T) string {
				path := createStore(t)
				if err := errors.Join(os.Remove(path+"-lock"), os.Mkdir(path+"-lock", 0o700)); err != nil {
					t.Fatal(err)
				}
				return path
			},
			says: "-lock: is a directory",
		},
		"a newer schema": {
			path: func(t *testing.T) string {
				path := createStore(t)
				execSQL(t, openDirect(t, path), "UPDATE meta SET version = 3")
				return path
			},
			is: storage.ErrNewerSchema, says: "version 3",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := c.path(t)
			before, _ := os.ReadFile(path)
			s, err := New(t.Context(), path, &c.options)
			if err == nil {
				t.Fatal("opened the file", s.Close())
			}
			if c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), path) {
				t.Errorf("got error %v; expected %v, with %q and the path in its text", err, c.is, c.says)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("the error has more than one line: %q", err)
			}
			if after, _ := os.ReadFile(path); string(after) != string(before) {
				t.Error("the file was changed")
			}
		})
	}
}

func newPathFor(t *testing.T) string { return newPath(t) }

func TestOpenWithCancelledContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	path := newPath(t)
	if _, err := New(ctx, path, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v, expected the context's error", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file was created: %v", err)
	}
}

// If another program holds a lock on the new file, Open fails at its deadline, and a later Open succeeds.
func TestOpenDeadline(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	db := openDirect(t, path)
	execSQL(t, db, "BEGIN EXCLUSIVE")
	ctx, cancel := context.WithTimeout(t.Context(), 1)
	defer cancel()
	if _, err := New(ctx, path, nil); err == nil {
		t.Fatal("opened a locked file")
	}
	if _, err := New(t.Context(), path, &Options{Timeout: 1}); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, storage.ErrInconsistent) {
		t.Fatalf("got error %v, expected a timeout", err)
	}
	execSQL(t, db, "ROLLBACK")
	fixture.Write(t, open(t, path, nil), resource("a", 1))
}

// All symbolic links to a file open the same store, with the same files beside it.
func TestSymbolicLinks(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	path, link := filepath.Join(folder, "store.db"), filepath.Join(folder, "link.db")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	s := open(t, path, nil)
	linked := open(t, link, nil)
	w := fixture.WatchChanges(t, linked)
	wantUpsert(t, w, fixture.Write(t, s, resource("a", 1)))
	if s.Path() != linked.Path() {
		t.Errorf("%s and %s are different stores", s.Path(), linked.Path())
	}
}

func TestSpecialCharactersInPaths(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a b.db", "q?x=1.db", "50%.db", "ümläut.db", "file:x.db", "quote'.db"} {
		path := filepath.Join(t.TempDir(), name)
		s := open(t, path, nil)
		fixture.Write(t, s, resource("a", 1))
		if err := s.Backup(t.Context(), path+".copy"); err != nil {
			t.Error(err)
		}
		if err := s.Backup(t.Context(), path+".copy"); err == nil {
			t.Error("a backup replaced an existing file")
		}
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
}

func TestConcurrentOpen(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	var openers sync.WaitGroup
	for i := range 8 {
		openers.Go(func() {
			s, err := New(t.Context(), path, nil)
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := s.WriteCAS(t.Context(), resource(fmt.Sprint(i), 1)); err != nil {
				t.Error(err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	openers.Wait()
	list, err := open(t, path, nil).List(t.Context(), storage.StrongConsistency, fixture.AllTypes, fixture.AllTenancies, "")
	if err != nil || len(list) != 8 {
		t.Fatalf("got %d resources, error %v; expected 8", len(list), err)
	}
}

// A connection without syncs would lose acknowledged writes, and no other test would show it.
func TestConnectionsAreDurable(t *testing.T) {
	t.Parallel()
	s := open(t, newPath(t), nil)
	reader, err := s.handle.readers.take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.handle.readers.give(reader)
	for name, c := range map[string]*conn{"writer": s.handle.writer.conn, "reader": reader} {
		if err := c.checkDurable(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := s.handle.writer.conn.db.Exec("PRAGMA synchronous = NORMAL"); err != nil {
		t.Fatal(err)
	}
	if err := s.handle.writer.conn.checkDurable(); err == nil {
		t.Error("checkDurable accepted synchronous=NORMAL")
	}
}

func TestLibraryVersions(t *testing.T) {
	t.Parallel()
	for text, ok := range map[string]bool{
		"3.51.3": true, "3.51.10": true, "3.52.0": true, "4.0.0": true, "3.51.2": false, "3.49.9": false, "2.99.99": false, "new": false, "": false,
	} {
		if err := checkLibraryVersion(text); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}
