package sqlite

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/ncruces/go-sqlite3"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/cursor"
)

// schemaVersion is the version of the tables that this program creates. The files sql/create-*.sql describe them.
const schemaVersion = 2

// applicationID marks the file as a store, for this package and for file(1).
const applicationID = 0x4153484c // ASHL

// oldestLibrary is the first version of SQLite without a bug that corrupts a database when one of several writing
// processes resets the WAL.
var oldestLibrary = [3]int{3, 51, 3}

func checkLibrary(c *conn) error {
	version := ""
	if _, err := c.queryRow("library-version", func(s *sqlite3.Stmt) { version = s.ColumnText(0) }); err != nil {
		return err
	}
	return checkLibraryVersion(version)
}

func checkLibraryVersion(text string) error {
	var have [3]int
	for i, part := range strings.SplitN(text, ".", 3) {
		n, err := strconv.Atoi(part)
		if err != nil {
			return fmt.Errorf("SQLite has the malformed version %q", text)
		}
		have[i] = n
	}
	for i, want := range oldestLibrary {
		if have[i] != want {
			if have[i] < want {
				return fmt.Errorf("SQLite %s can corrupt a file that several processes write to: version 3.51.3 or newer is required", text)
			}
			break
		}
	}
	return nil
}

// meta describes the store in a file.
type meta struct {
	exists            bool
	foreign           bool // the tables belong to another program
	store             cursor.StoreID
	version           int
	ownerIndexCurrent bool // the index of owners is the one that this program creates
	hasCalls          bool // the tables have the last row of each call
}

// stale reports whether the tables are outdated and upgrade can update them.
func (m meta) stale() bool {
	return m.version == 1 || m.version == schemaVersion && !(m.ownerIndexCurrent && m.hasCalls)
}

func (c *conn) meta() (m meta, err error) {
	var tables, ours, id int
	_, err = c.queryRow("tables", func(s *sqlite3.Stmt) { tables, ours, id = s.ColumnInt(0), s.ColumnInt(1), s.ColumnInt(2) })
	if err != nil || tables == 0 && id == 0 {
		return m, err
	}
	if ours < 3 || id != applicationID {
		return meta{foreign: true}, nil
	}
	m.exists = true
	_, err = c.queryRow("meta", func(s *sqlite3.Stmt) {
		copy(m.store[:], s.ColumnRawBlob(0))
		m.version = s.ColumnInt(1)
		m.ownerIndexCurrent, m.hasCalls = s.ColumnBool(2), s.ColumnBool(3)
	})
	return m, err
}

// prepare ensures that the database is a store in WAL mode, with the present tables, and returns its id. Several
// processes may call it at once. The lock file orders them and, on systems without flock, SQLite's own lock.
func (c *conn) prepare(ctx context.Context, lock *lockFile, create bool) (cursor.StoreID, error) {
	m, err := c.meta()
	if err != nil {
		return m.store, err
	}
	if m.foreign {
		return m.store, errors.New("the file is a SQLite database of another program")
	}
	if !m.exists && !create {
		return m.store, fmt.Errorf("%w: the file has none, and create=off forbids creating one", storage.ErrNoStore)
	}
	mode, err := c.pragma("journal_mode")
	if err != nil {
		return m.store, err
	}
	if !m.exists || mode != "wal" {
		if err := lock.lockPolling(ctx); err != nil {
			return m.store, err
		}
		if err := errors.Join(c.create(ctx), lock.unlock()); err != nil {
			return m.store, err
		}
		if m, err = c.meta(); err != nil {
			return m.store, err
		}
	}
	if m.stale() {
		if err := lock.lockPolling(ctx); err != nil {
			return m.store, err
		}
		// Ignore the deadline, because an interrupted upgrade would start over each time.
		c.db.SetInterrupt(context.WithoutCancel(ctx))
		err := errors.Join(c.upgrade(), lock.unlock())
		c.db.SetInterrupt(ctx)
		if err != nil {
			return m.store, fmt.Errorf("upgrade the tables: %w", upgradeError(err))
		}
		if m, err = c.meta(); err != nil {
			return m.store, err
		}
	}
	switch {
	case m.version > schemaVersion:
		return m.store, fmt.Errorf("%w: version %d, this program knows %d", storage.ErrNewerSchema, m.version, schemaVersion)
	case m.version != schemaVersion:
		return m.store, fmt.Errorf("the store has schema version %d, expected %d", m.version, schemaVersion)
	}
	return m.store, nil
}

// create switches the database to WAL mode, which a restored backup is not in, and creates missing tables.
func (c *conn) create(ctx context.Context) error {
	// Unlike statements, a change of the journal mode does not wait for other connections.
	err := poll(ctx, func() (bool, error) {
		err := c.db.Exec("PRAGMA journal_mode = WAL")
		if errors.Is(err, sqlite3.BUSY) {
			return false, nil
		}
		return true, err
	})
	if err != nil {
		return err
	}
	if err := c.exec("begin-immediate"); err != nil {
		return err
	}
	if m, err := c.meta(); err != nil || m.exists || m.foreign {
		return errors.Join(err, c.endTransaction())
	}
	var store cursor.StoreID
	_, _ = rand.Read(store[:]) // never fails
	err = c.createTables("meta", "resources", "log", "gone")
	if err == nil {
		err = c.db.Exec("PRAGMA application_id = " + strconv.Itoa(applicationID))
	}
	if err == nil {
		err = c.exec("insert-meta", store[:], int64(schemaVersion))
	}
	if err == nil {
		err = c.exec("commit")
	}
	if err != nil {
		return errors.Join(err, c.endTransaction())
	}
	return nil
}

// upgrade updates the tables in one transaction, unless another process has updated them.
func (c *conn) upgrade() (err error) {
	if err := c.exec("begin-immediate"); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.endTransaction())
		}
	}()
	m, err := c.meta()
	if err != nil || !m.stale() {
		return errors.Join(err, c.endTransaction())
	}
	for _, step := range c.upgrades(m) {
		if err := step(); err != nil {
			return err
		}
	}
	return c.exec("commit")
}

// upgradeError explains the error of an upgrade. To add a column, SQLite checks the values of the table. It reports a bad value as an error of
// the statement, which may have other causes.
func upgradeError(err error) error {
	if errors.Is(err, sqlite3.ERROR) || errors.Is(err, sqlite3.CORRUPT) {
		return fmt.Errorf("the file may be damaged: run fsck with the version of ashlar that wrote it: %w", err)
	}
	return err
}

// upgrades returns the steps of an upgrade.
func (c *conn) upgrades(m meta) (steps []func() error) {
	if m.version == schemaVersion {
		if !m.ownerIndexCurrent {
			steps = append(steps, func() error { return c.script("upgrade-owner-index") })
		}
		if !m.hasCalls {
			steps = append(steps, func() error { return c.script("upgrade-calls") })
		}
		return steps
	}
	return []func() error{
		func() error { return c.script("upgrade-set-aside") },
		func() error { return c.createTables("resources", "log", "gone") },
		c.buildChains,
		func() error { return c.script("upgrade-copy") },
	}
}

// createTables creates tables and their indexes.
func (c *conn) createTables(names ...string) error {
	for _, name := range names {
		if err := c.script("create-" + name); err != nil {
			return err
		}
	}
	return nil
}

// buildChains computes the chains of the rows of an old log.
func (c *conn) buildChains() (err error) {
	rows, err := c.query("upgrade-old-log")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ignoreRepeated(rows.Reset(), err)) }()
	var key []byte
	var l chainEntry
	for rows.Step() {
		seq, deletion := rows.ColumnInt64(0), rows.ColumnType(1) != sqlite3.NULL
		if k := rows.ColumnRawBlob(2); string(k) != string(key) {
			key, l = append(key[:0], k...), chainEntry{}
		}
		row, prev, jump := l, l.seq, int64(0)
		if deletion {
			// The row of the deleted version may have been pruned.
			if prev = rows.ColumnInt64(1); prev != l.seq {
				row = chainEntry{seq: prev, creation: prev, writes: 1}
			}
			jump = row.step
		} else {
			row, jump = l.next(seq, seq)
		}
		if err := c.exec("upgrade-link", seq, row.creation, row.writes, prev, jump, row.step, row.leap); err != nil {
			return err
		}
		if l = row; deletion {
			l = chainEntry{}
		}
	}
	return rows.Err()
}
