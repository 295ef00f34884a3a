package sqlite

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/history"
)

// commitAll writes resources of these names in one transaction, and returns their revision.
func commitAll(t *testing.T, s *Backend, names ...string) (revision int64) {
	t.Helper()
	var ops []storage.Op
	for _, name := range names {
		res := resource(name, 0)
		old, err := s.Read(t.Context(), storage.StrongConsistency, res.Id)
		if err == nil {
			res.Version = old.Version
		} else if !errors.Is(err, storage.ErrNotFound) {
			t.Fatal(err)
		}
		ops = append(ops, storage.Op{Write: res})
	}
	if _, err := s.Commit(t.Context(), ops); err != nil {
		t.Fatal(err)
	}
	modified := modifiedAt(t, s, 0)
	for _, name := range names {
		if revision = modified[names[0]]; modified[name] != revision {
			t.Fatalf("the revisions after the commit of %v are %v", names, modified)
		}
	}
	return revision
}

// modifiedAt returns the revision of each resource at a revision.
func modifiedAt(t *testing.T, s *Backend, revision int64) map[string]int64 {
	t.Helper()
	h, ok := storage.As[history.Historian](storage.Backend(s))
	if !ok {
		t.Fatal("the store has no history")
	}
	scan, err := h.Scan(t.Context(), history.Range{}, history.ScanOptions{Revision: revision})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]int64{}
	for _, r := range scan.Records {
		all[r.Resource.Id.Name] = r.Modified
	}
	return all
}

// A revision inside a transaction shows the state before it. The horizon is never inside one.
func TestRevisionInsideACall(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s := open(t, path, nil)
	first := commitAll(t, s, "a", "b", "c")
	second := commitAll(t, s, "a", "b", "c", "d")
	for _, revision := range []int64{second - 3, second - 1} {
		if got := modifiedAt(t, s, revision); len(got) != 3 || got["a"] != first {
			t.Errorf("at revision %d, between %d and %d, the store contains %v", revision, first, second, got)
		}
	}
	h, _ := storage.As[history.Historian](storage.Backend(s))
	if err := h.Compact(t.Context(), second-1); err != nil {
		t.Fatal(err)
	}
	if oldest, _, err := h.Revisions(t.Context()); err != nil || oldest != first {
		t.Errorf("the oldest revision is %d, %v, expected %d", oldest, err, first)
	}
	checkTables(t, path)
}

// A store of an early version 2 gets the columns of calls when it is opened, and its transactions keep their revisions.
func TestUpgradeCalls(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s := open(t, path, nil)
	for _, name := range []string{"a", "b", "c"} {
		commitAll(t, s, name)
	}
	before := modifiedAt(t, s, 0)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	db := openDirect(t, path)
	execSQL(t, db, `ALTER TABLE log DROP COLUMN last; ALTER TABLE resources DROP COLUMN last`)
	s = open(t, path, nil)
	other := open(t, path, nil)
	if after := modifiedAt(t, s, 0); len(after) != 3 || after["b"] != before["b"] {
		t.Errorf("the revisions were %v and are %v", before, after)
	}
	commitAll(t, s, "a", "b", "d")
	commitAll(t, other, "a", "c")
	checkTables(t, path)
}

// A program of an earlier version can move the horizon into a transaction. The store can be read from the end of the transaction on.
func TestHorizonInsideACall(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s := open(t, path, nil)
	first := commitAll(t, s, "a", "b", "c")
	execSQL(t, openDirect(t, path), `UPDATE meta SET followed = 2, horizon = 2`)
	h, _ := storage.As[history.Historian](storage.Backend(s))
	for range 2 {
		oldest, _, err := h.Revisions(t.Context())
		if err != nil || oldest != first {
			t.Fatalf("the oldest revision is %d, %v, expected %d", oldest, err, first)
		}
		if got := modifiedAt(t, s, oldest); len(got) != 3 || got["a"] != first {
			t.Errorf("at the oldest revision %d the store contains %v", oldest, got)
		}
		if _, err := h.Follow(t.Context(), history.Range{}, oldest-1); !errors.Is(err, storage.ErrCompacted) {
			t.Errorf("follow from revision %d, before the oldest: %v, expected ErrCompacted", oldest-1, err)
		}
		commitAll(t, s, "a")
	}
}

// The upgrade of a damaged file fails each time, and the error says what to do.
func TestUpgradeDamagedCalls(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s := open(t, path, nil)
	commitAll(t, s, "a")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	db := openDirect(t, path)
	const declared, nullable = "data          BLOB NOT NULL", "data          BLOB"
	declare := func(from, to string) {
		execSQL(t, db, fmt.Sprintf(`PRAGMA writable_schema = ON;
			UPDATE sqlite_schema SET sql = replace(sql, '%s', '%s') WHERE name = 'resources'; PRAGMA writable_schema = RESET`, from, to))
	}
	execSQL(t, db, `ALTER TABLE log DROP COLUMN last; ALTER TABLE resources DROP COLUMN last`)
	declare(declared, nullable)
	execSQL(t, db, `UPDATE resources SET data = NULL`)
	declare(nullable, declared)
	for range 2 {
		if _, err := New(t.Context(), path, nil); err == nil || !strings.Contains(err.Error(), "the file may be damaged: run fsck") {
			t.Errorf("opening a damaged file of an earlier version: %v", err)
		}
	}
}

// Retention moves the horizon past whole transactions.
func TestRetentionKeepsCallsWhole(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s := open(t, path, &Options{RetentionRows: 1, minRetention: 1})
	h, _ := storage.As[history.Historian](storage.Backend(s))
	for oldest, calls := int64(0), 0; calls < 10; {
		revision := commitAll(t, s, "a", "b", "c", "d", "e", "f", "g")
		now, _, err := h.Revisions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if now == oldest {
			continue
		}
		oldest, calls = now, calls+1
		if (revision-oldest)%7 != 0 {
			t.Errorf("the oldest revision is %d, the newest %d, although each commit makes 7 changes", oldest, revision)
		}
		checkTables(t, path)
	}
}
