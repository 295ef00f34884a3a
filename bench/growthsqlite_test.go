package bench

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/ncruces/go-sqlite3"
)

// BenchmarkGrowthSQLite grows a file beside one with the same data in two tables, the resources with an index of owners and a log,
// through the same driver.
func BenchmarkGrowthSQLite(b *testing.B) { once(b, func() { growSQLite(b) }) }

func init() {
	openers["sqlite"] = func(where string) (growing, error) { return openGrowingSQLite(where) }
}

func growSQLite(b *testing.B) {
	dir := must(filepath.Abs(must(os.MkdirTemp(os.Getenv("ASHLAR_BENCH_DIR"), "bench-growth-"))))
	b.Cleanup(func() { os.RemoveAll(dir) })
	where := [2]string{dir + "/raw.db", "sqlite://" + dir + "/store.db"}
	raw := must(openGrowingSQLite(where[0]))
	b.Cleanup(func() { raw.close() })
	ours := must(openGrowing(where[1], func() error {
		// Filled last, so that the system caches pages of both files when the first turn begins, or of neither.
		return errors.Join(checkpoint(dir+"/store.db"), readThrough(where[0]), readThrough(dir+"/store.db"))
	}))
	b.Cleanup(func() { ours.close() })
	(&growths{
		name: "sqlite", shown: "SQLite", raw: "ncruces/go-sqlite3", most: 1_000_000,
		notes:  []string{"Memory is the peak of a process that reads, watches and lists everything in pages."},
		sides:  [2]growing{raw, ours},
		memory: peakMemory("sqlite", where),
	}).run(b)
}

// checkpoint moves the contents of the -wal file of a database into the database.
func checkpoint(path string) error {
	db, err := sqlite3.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(db.Exec(`PRAGMA busy_timeout = 10000; PRAGMA wal_checkpoint(TRUNCATE)`), db.Close())
}

// readThrough reads a file completely, so that the system caches it as far as possible: the measurement concerns the databases, not
// the age of the system's cache.
func readThrough(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(io.Discard, f)
	return err
}

// growingSQLite uses the statements that a program would use for one table, its log and its index of owners.
type growingSQLite struct {
	db         *sqlite3.Conn
	path       string
	data       []byte
	statements map[string]*sqlite3.Stmt
}

func openGrowingSQLite(path string) (*growingSQLite, error) {
	db, err := sqlite3.Open(path)
	if err != nil {
		return nil, err
	}
	s := &growingSQLite{db: db, path: path, data: payload(600), statements: map[string]*sqlite3.Stmt{}}
	return s, db.Exec(`PRAGMA busy_timeout = 10000; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
		PRAGMA wal_autocheckpoint = 4000; PRAGMA cache_size = -16384;
		CREATE TABLE IF NOT EXISTS resources (key TEXT PRIMARY KEY, owner TEXT, version INTEGER NOT NULL, data BLOB NOT NULL) STRICT, WITHOUT ROWID;
		CREATE INDEX IF NOT EXISTS owners ON resources (owner) WHERE owner IS NOT NULL;
		CREATE TABLE IF NOT EXISTS log (seq INTEGER PRIMARY KEY, key TEXT NOT NULL, data BLOB NOT NULL) STRICT`)
}

// run runs a statement and returns the number of rows.
func (s *growingSQLite) run(sql string, args ...any) (rows int, err error) {
	stmt := s.statements[sql]
	if stmt == nil {
		if stmt, _, err = s.db.Prepare(sql); err != nil {
			return 0, err
		}
		s.statements[sql] = stmt
	}
	for i, arg := range args {
		switch arg := arg.(type) {
		case string:
			err = errors.Join(err, stmt.BindText(i+1, arg))
		case int:
			err = errors.Join(err, stmt.BindInt64(i+1, int64(arg)))
		case []byte:
			err = errors.Join(err, stmt.BindBlob(i+1, arg))
		case nil:
			err = errors.Join(err, stmt.BindNull(i+1))
		}
	}
	if err != nil {
		return 0, err
	}
	for stmt.Step() {
		rows++
		if stmt.ColumnCount() > 1 {
			_ = append([]byte(nil), stmt.ColumnRawBlob(1)...)
		}
	}
	return rows, errors.Join(stmt.Err(), stmt.Reset())
}

func (s *growingSQLite) all(statements ...[]any) error {
	for _, st := range statements {
		if _, err := s.run(st[0].(string), st[1:]...); err != nil {
			_ = s.db.Exec(`ROLLBACK`) // the first error is the one that counts
			return err
		}
	}
	return nil
}

const logIt = `INSERT INTO log (key, data) VALUES (?1, ?2)`

func (s *growingSQLite) add(from, to int, done func(n int)) error {
	return inBatches(from, to, 1000, 1, done, func(from, to int) error {
		all := [][]any{{`BEGIN IMMEDIATE`}}
		for i := from; i < to; i++ {
			var owner any
			if of, owned := ownerOf(i); owned {
				owner = nameOf(of)
			}
			all = append(all, []any{`INSERT INTO resources VALUES (?1, ?2, 1, ?3)`, nameOf(i), owner, s.data}, []any{logIt, nameOf(i), s.data})
		}
		return s.all(append(all, []any{`COMMIT`})...)
	})
}

func (s *growingSQLite) settle() error { return checkpoint(s.path) }

func (s *growingSQLite) read(i int) error {
	n, err := s.run(`SELECT version, data FROM resources WHERE key = ?1`, nameOf(i))
	if err == nil && n != 1 {
		err = fmt.Errorf("no %s", nameOf(i))
	}
	return err
}

func (s *growingSQLite) write(i int) error {
	return s.all([]any{`BEGIN IMMEDIATE`},
		[]any{`UPDATE resources SET version = version + 1, data = ?2 WHERE key = ?1`, nameOf(i), s.data},
		[]any{logIt, nameOf(i), s.data}, []any{`COMMIT`})
}

// The colon follows the digits of all names.
func (s *growingSQLite) list(prefix string) (int, error) {
	return s.run(`SELECT key, data FROM resources WHERE key >= ?1 AND key < ?2 ORDER BY key`, prefix, prefix+":")
}

// watch reads the items and the end of the log, in one transaction.
func (s *growingSQLite) watch(prefix string) (n int, err error) {
	if _, err := s.run(`BEGIN`); err != nil {
		return 0, err
	}
	n, err = s.list(prefix)
	_, err2 := s.run(`SELECT max(seq) FROM log`)
	_, err3 := s.run(`COMMIT`)
	return n, errors.Join(err, err2, err3)
}

func (s *growingSQLite) owned(i int) (int, error) {
	return s.run(`SELECT key FROM resources WHERE owner = ?1 ORDER BY key`, nameOf(i))
}

func (s *growingSQLite) first(limit int) (int, error) { return s.pageAfter("", limit) }

func (s *growingSQLite) pageAfter(after string, limit int) (int, error) {
	return s.run(`SELECT key, data FROM resources WHERE key > ?1 ORDER BY key LIMIT ?2`, after, limit)
}

func (s *growingSQLite) walk(limit int) (int, error) { return walkNames(limit, s.pageAfter) }

func (s *growingSQLite) close() error {
	for _, stmt := range s.statements {
		_ = stmt.Close()
	}
	return s.db.Close()
}
