package sqlite

import (
	"errors"
	"strings"

	"github.com/ncruces/go-sqlite3"
)

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
			err = errors.Join(err, c.abandon())
		}
	}()
	m, err := c.meta()
	if err != nil || !m.stale() {
		return errors.Join(err, c.abandon())
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
		func() error { return c.db.Exec(tablesOf(schema, "resources", "log", "gone")) },
		c.link,
		func() error { return c.db.Exec(moveOver) },
	}
}

// tablesOf returns those statements of the schema that make these tables and their indices.
func tablesOf(schema string, names ...string) string {
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

// link works out how the rows of the old log hang together.
func (c *conn) link() (err error) {
	rows, _, err := c.db.Prepare(oldOrder)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ignoring(rows.Close(), err)) }()
	add, _, err := c.db.Prepare(addLink)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ignoring(add.Close(), err)) }()
	var key []byte
	var l link
	for rows.Step() {
		seq, gone := rows.ColumnInt64(0), rows.ColumnType(1) != sqlite3.NULL
		if k := rows.ColumnRawBlob(2); string(k) != string(key) {
			key, l = append(key[:0], k...), link{}
		}
		row, prev, jump := l, l.seq, int64(0)
		if gone {
			// The row that wrote what was deleted may have been pruned.
			if prev = rows.ColumnInt64(1); prev != l.seq {
				row = link{seq: prev, created: prev, writes: 1}
			}
			jump = row.step
		} else {
			row, jump = l.next(seq)
		}
		err := errors.Join(add.BindInt64(1, seq), add.BindInt64(2, row.created), add.BindInt64(3, row.writes),
			add.BindInt64(4, prev), add.BindInt64(5, jump), add.BindInt64(6, row.step), add.BindInt64(7, row.leap))
		if err == nil {
			err = add.Exec()
		}
		if err != nil {
			return err
		}
		if l = row; gone {
			l = link{}
		}
	}
	return rows.Err()
}
