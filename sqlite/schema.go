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

// schemaVersion is the version of the tables that this program writes.
const schemaVersion = 2

// applicationID marks the file as a store, for file(1) and for us.
const applicationID = 0x4153484c // ASHL

// The tables are also history: the store can be read as it was at each row of the log from the horizon on. chain.go says
// how.
//
// Rows of the log are never given a number again: the newest row is never pruned. The fence is empty, or says where the store
// has moved to; writers then refuse. Everything of a row but its data stands before the data, which may fill many pages.
//
// The resources are ordered by key, so that a list reads neighbours, and few of them fit into a page, so that their tree is deep. The
// index of owners holds all that is asked of it, so that nobody climbs that tree for each child.
const schema = `
CREATE TABLE meta (
	id       INTEGER PRIMARY KEY CHECK (id = 1),
	store    BLOB NOT NULL,
	version  INTEGER NOT NULL,
	fence    TEXT NOT NULL,
	horizon  INTEGER NOT NULL DEFAULT 0, -- the oldest row at which the store can be read
	followed INTEGER NOT NULL DEFAULT 0, -- the oldest row after which all are there
	pruned   INTEGER NOT NULL DEFAULT 0  -- the row before which nothing is left to prune
) STRICT;
CREATE TABLE resources (
	key           BLOB PRIMARY KEY,
	seq           INTEGER NOT NULL,
	tag           INTEGER NOT NULL,
	created       INTEGER NOT NULL DEFAULT 0, -- the row of the log by which the resource was created
	writes        INTEGER NOT NULL DEFAULT 1, -- the rows from that one to the newest
	step          INTEGER NOT NULL DEFAULT 0, -- the newest of them whose count is divisible by 32
	leap          INTEGER NOT NULL DEFAULT 0, -- the newest of them whose count is divisible by 1024
	uid           TEXT NOT NULL,
	group_version TEXT NOT NULL,
	owner         BLOB,
	data          BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX resources_owned ON resources (owner, key, uid, group_version) WHERE owner IS NOT NULL;
CREATE TABLE log (
	seq      INTEGER PRIMARY KEY,
	tag      INTEGER NOT NULL,
	written  INTEGER NOT NULL,           -- the time in ms
	created  INTEGER NOT NULL DEFAULT 0,
	writes   INTEGER NOT NULL DEFAULT 1,
	prev     INTEGER NOT NULL DEFAULT 0, -- the row before of the same resource; 0: this one has created it
	jump     INTEGER NOT NULL DEFAULT 0, -- an older row of the same resource, or 0
	gone_tag INTEGER,                    -- of a deletion: the tag of the row before
	key      BLOB NOT NULL,
	data     BLOB NOT NULL
) STRICT;
CREATE TABLE gone (
	key BLOB NOT NULL,
	seq INTEGER NOT NULL, -- the row of a deletion
	PRIMARY KEY (key, seq)
) STRICT, WITHOUT ROWID;
`

// oldestLibrary is the first SQLite without the bug by which several writing processes could corrupt a database when one of
// them reset the WAL.
var oldestLibrary = [3]int{3, 51, 3}

func checkLibrary(c *conn) error {
	s, _, err := c.db.Prepare("SELECT sqlite_version()")
	if err != nil {
		return err
	}
	text := ""
	if s.Step() {
		text = s.ColumnText(0)
	}
	if err := errors.Join(s.Err(), s.Close()); err != nil {
		return err
	}
	return checkLibraryVersion(text)
}

func checkLibraryVersion(text string) error {
	var have [3]int
	for i, part := range strings.SplitN(text, ".", 3) {
		n, err := strconv.Atoi(part)
		if err != nil {
			return fmt.Errorf("SQLite calls itself version %q", text)
		}
		have[i] = n
	}
	for i, want := range oldestLibrary {
		if have[i] != want {
			if have[i] < want {
				return fmt.Errorf("SQLite %s can corrupt a file that several processes write to: 3.51.3 or newer is needed", text)
			}
			break
		}
	}
	return nil
}

// meta is what a store says about itself.
type meta struct {
	exists            bool
	foreign           bool // the file holds tables of somebody else
	store             cursor.StoreID
	version           int
	ownerIndexCurrent bool // the index of owners is the one of this program's tables
}

// stale reports whether this program knows how to bring the tables up to date.
func (m meta) stale() bool {
	return m.version == 1 || m.version == schemaVersion && !m.ownerIndexCurrent
}

func (c *conn) meta() (meta, error) {
	// One statement, so that it sees one state while another process creates the tables.
	s, _, err := c.db.Prepare(`SELECT count(*), count(*) FILTER (WHERE name IN ('meta', 'resources', 'log')),
		(SELECT application_id FROM pragma_application_id) FROM sqlite_schema WHERE type = 'table'`)
	if err != nil {
		return meta{}, err
	}
	var tables, ours, id int
	if s.Step() {
		tables, ours, id = s.ColumnInt(0), s.ColumnInt(1), s.ColumnInt(2)
	}
	if err := errors.Join(s.Err(), s.Close()); err != nil {
		return meta{}, err
	}
	if tables == 0 && id == 0 {
		return meta{}, nil
	}
	if ours < 3 || id != applicationID {
		return meta{foreign: true}, nil
	}
	s, _, err = c.db.Prepare("SELECT store, version, EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'resources_owned') FROM meta")
	if err != nil {
		return meta{}, err
	}
	m := meta{exists: true}
	if s.Step() {
		copy(m.store[:], s.ColumnRawBlob(0))
		m.version = s.ColumnInt(1)
		m.ownerIndexCurrent = s.ColumnBool(2)
	}
	return m, errors.Join(s.Err(), s.Close())
}

// prepare makes sure that the database is a store in WAL mode, creating its tables if need be, and returns its id. Several
// processes may do so at once: the side file's lock keeps them apart, and SQLite's own does where that lock has no effect.
func (c *conn) prepare(ctx context.Context, side *lockFile, create bool) (cursor.StoreID, error) {
	m, err := c.meta()
	if err != nil {
		return m.store, err
	}
	if m.foreign {
		return m.store, errors.New("the file is a SQLite database of another program")
	}
	if !m.exists && !create {
		return m.store, errors.New("the file holds no store, and create=off forbids making one")
	}
	mode, err := c.pragma("journal_mode")
	if err != nil {
		return m.store, err
	}
	if !m.exists || mode != "wal" {
		if err := side.lockPolling(ctx); err != nil {
			return m.store, err
		}
		if err := errors.Join(c.create(ctx), side.unlock()); err != nil {
			return m.store, err
		}
		if m, err = c.meta(); err != nil {
			return m.store, err
		}
	}
	if m.stale() {
		if err := side.lockPolling(ctx); err != nil {
			return m.store, err
		}
		// Cut off by a deadline it would begin anew each time.
		c.db.SetInterrupt(context.WithoutCancel(ctx))
		err := errors.Join(c.upgrade(), side.unlock())
		c.db.SetInterrupt(ctx)
		if err != nil {
			return m.store, fmt.Errorf("upgrade the tables: %w", err)
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

// create switches to WAL mode, which a restored backup is not in, and makes the tables unless they are there.
func (c *conn) create(ctx context.Context) error {
	// A change of the journal mode does not wait for other connections as statements do.
	err := poll(ctx, func() (bool, error) {
		err := c.db.Exec("PRAGMA journal_mode = WAL")
		return !errors.Is(err, sqlite3.BUSY), ignoreCode(err, sqlite3.BUSY)
	})
	if err != nil {
		return err
	}
	if err := c.exec(beginImmediate); err != nil {
		return err
	}
	if m, err := c.meta(); err != nil || m.exists || m.foreign {
		return errors.Join(err, c.endTransaction())
	}
	var store cursor.StoreID
	_, _ = rand.Read(store[:]) // never fails
	err = c.db.Exec(schema + "PRAGMA application_id = " + strconv.Itoa(applicationID) + `;
		INSERT INTO meta (id, store, version, fence) VALUES (1, ` + sqlite3.Quote(store[:]) + `, ` + strconv.Itoa(schemaVersion) + `, '')`)
	if err == nil {
		err = c.exec(commit)
	}
	if err != nil {
		return errors.Join(err, c.endTransaction())
	}
	return nil
}

// Version 1 had no history: its log told what was written, and was pruned from its beginning. Its rows keep their numbers, so that
// cursors and versions stay good. What was stored before the log's first row is not known at every one of its rows, so the store can
// be read from the newest row on, although changes can be followed from the first.
//
// A program of version 1 that has the store open cannot go on writing: it names the column log.at, which is gone.
const (
	setAside = `
ALTER TABLE meta ADD COLUMN horizon INTEGER NOT NULL DEFAULT 0;
ALTER TABLE meta ADD COLUMN followed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE meta ADD COLUMN pruned INTEGER NOT NULL DEFAULT 0;
DROP INDEX resources_by_owner;
ALTER TABLE resources RENAME TO old_resources;
ALTER TABLE log RENAME TO old_log;
CREATE INDEX old_log_by_key ON old_log (key);
CREATE TABLE links (
	seq     INTEGER PRIMARY KEY,
	created INTEGER NOT NULL,
	writes  INTEGER NOT NULL,
	prev    INTEGER NOT NULL,
	jump    INTEGER NOT NULL,
	step    INTEGER NOT NULL,
	leap    INTEGER NOT NULL
) STRICT;`
	oldOrder = `SELECT seq, gone_seq, key FROM old_log ORDER BY key, seq`
	addLink  = `INSERT INTO links (seq, created, writes, prev, jump, step, leap) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)`
	moveOver = `
UPDATE meta SET version = 2, (followed, horizon) = (SELECT coalesce(min(seq), 0), coalesce(max(seq), 0) FROM old_log);
UPDATE meta SET followed = 0 WHERE followed = 1 AND (SELECT count(*) FROM old_log) = horizon;
UPDATE meta SET pruned = followed;
INSERT INTO log (seq, tag, written, created, writes, prev, jump, gone_tag, key, data)
	SELECT seq, tag, (SELECT coalesce(min(at), 0) FROM old_log), seq, 1, 0, 0, NULL, key, data
	FROM old_resources WHERE seq NOT IN (SELECT seq FROM old_log);
INSERT INTO log (seq, tag, written, created, writes, prev, jump, gone_tag, key, data)
	SELECT seq, tag, at, created, writes, prev, jump, gone_tag, key, data FROM old_log JOIN links USING (seq) ORDER BY seq;
INSERT INTO gone (key, seq) SELECT key, seq FROM old_log WHERE gone_seq IS NOT NULL;
INSERT INTO resources (key, seq, tag, created, writes, step, leap, uid, group_version, owner, data)
	SELECT key, seq, tag, coalesce(created, seq), coalesce(writes, 1), coalesce(step, 0), coalesce(leap, 0), uid, group_version, owner, data
	FROM old_resources LEFT JOIN links USING (seq) ORDER BY key;
DROP TABLE links;
DROP TABLE old_log;
DROP TABLE old_resources;`
)

// coverOwners gives the index of owners of an early version 2 all that is asked of it. Programs that have the store open go on.
const coverOwners = `
DROP INDEX IF EXISTS resources_by_owner;
CREATE INDEX resources_owned ON resources (owner, key, uid, group_version) WHERE owner IS NOT NULL;`

// upgrade makes older tables those of this program, in one transaction, unless another process has.
func (c *conn) upgrade() (err error) {
	if err := c.exec(beginImmediate); err != nil {
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
	for _, step := range c.upgrades(m.version) {
		if err := step(); err != nil {
			return err
		}
	}
	return c.exec(commit)
}

// upgrades returns the steps of an upgrade from a version. The new tables have the names of the old ones, so they are made when those
// were set aside.
func (c *conn) upgrades(version int) []func() error {
	if version == schemaVersion {
		return []func() error{func() error { return c.db.Exec(coverOwners) }}
	}
	return []func() error{
		func() error { return c.db.Exec(setAside) },
		func() error { return c.db.Exec(tableStatements(schema, "resources", "log", "gone")) },
		c.buildChains,
		func() error { return c.db.Exec(moveOver) },
	}
}

// tableStatements returns those statements of the schema that make these tables and their indices.
func tableStatements(schema string, names ...string) string {
	var out strings.Builder
	for statement := range strings.SplitAfterSeq(strings.TrimSpace(schema), ";\n") {
		for _, name := range names {
			if strings.HasPrefix(statement, "CREATE TABLE "+name+" ") || strings.HasPrefix(statement, "CREATE INDEX "+name+"_") {
				out.WriteString(statement)
			}
		}
	}
	return out.String()
}

// buildChains works out how the rows of the old log hang together.
func (c *conn) buildChains() (err error) {
	rows, _, err := c.db.Prepare(oldOrder)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ignoreRepeated(rows.Close(), err)) }()
	add, _, err := c.db.Prepare(addLink)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ignoreRepeated(add.Close(), err)) }()
	var key []byte
	var l chainEntry
	for rows.Step() {
		seq, gone := rows.ColumnInt64(0), rows.ColumnType(1) != sqlite3.NULL
		if k := rows.ColumnRawBlob(2); string(k) != string(key) {
			key, l = append(key[:0], k...), chainEntry{}
		}
		row, prev, jump := l, l.seq, int64(0)
		if gone {
			// The row that wrote what was deleted may have been pruned.
			if prev = rows.ColumnInt64(1); prev != l.seq {
				row = chainEntry{seq: prev, createRevision: prev, writes: 1}
			}
			jump = row.step
		} else {
			row, jump = l.next(seq)
		}
		err := errors.Join(add.BindInt64(1, seq), add.BindInt64(2, row.createRevision), add.BindInt64(3, row.writes),
			add.BindInt64(4, prev), add.BindInt64(5, jump), add.BindInt64(6, row.step), add.BindInt64(7, row.leap))
		if err == nil {
			err = add.Exec()
		}
		if err != nil {
			return err
		}
		if l = row; gone {
			l = chainEntry{}
		}
	}
	return rows.Err()
}
