package sqlite

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/ncruces/go-sqlite3"
)

// conn is a connection with its prepared statements. It must be used by one goroutine at a time.
type conn struct {
	db    *sqlite3.Conn
	stmts [queries]*sqlite3.Stmt
}

type query int

// The statements, prepared when first used.
const (
	begin query = iota
	beginImmediate
	commit
	rollback
	newest
	get
	scan
	owned
	history
	dataVersion
	state
	stored
	update
	replace
	insert
	logWrite
	logDelete
	remove
	linkOf
	deleted
	reach
	moveFollowed
	outdated
	prune
	pruneGone
	movePruned
	oldest
	find
	weigh
	inUse
	chain
	logRow
	tagOf
	readable
	pastRows
	pastKeys
	goneFrom
	goneAfter
	queries
)

var texts = [queries]string{
	begin:          `BEGIN`,
	beginImmediate: `BEGIN IMMEDIATE`,
	commit:         `COMMIT`,
	rollback:       `ROLLBACK`,
	newest:         `SELECT seq, tag FROM log ORDER BY seq DESC LIMIT 1`,
	get:            `SELECT seq, tag, data FROM resources WHERE key = ?1`,
	scan:           `SELECT key, seq, tag, data FROM resources WHERE key >= ?1 AND key < ?2 ORDER BY key`,
	owned:          `SELECT key, uid, group_version FROM resources WHERE owner = ?1 ORDER BY key`,
	history: `SELECT seq, tag, gone_tag, prev, created, writes, key, data, (SELECT followed FROM meta) FROM log
		WHERE seq >= ?1 ORDER BY seq`,
	dataVersion: `PRAGMA data_version`,
	// What a writer has to know when its transaction has begun.
	state: `SELECT fence, followed, horizon, pruned, seq, tag, written
		FROM meta LEFT JOIN (SELECT seq, tag, written FROM log ORDER BY seq DESC LIMIT 1)`,
	stored: `SELECT uid, seq, tag FROM resources WHERE key = ?1`,
	// The common case in one statement. A new owner or group version goes through replace, because setting an indexed column costs
	// its index even where the value stays.
	update: `UPDATE resources SET seq = ?1, tag = ?2, data = ?4, writes = ?10, step = ?11, leap = ?12
		WHERE key = ?5 AND uid = ?6 AND seq = ?7 AND tag = ?8 AND owner IS ?9 AND group_version = ?3`,
	replace: `UPDATE resources SET seq = ?1, tag = ?2, group_version = ?3, data = ?4, owner = ?9, writes = ?10, step = ?11, leap = ?12
		WHERE key = ?5 AND uid = ?6 AND seq = ?7 AND tag = ?8`,
	insert: `INSERT INTO resources (seq, tag, created, group_version, data, key, uid, owner)
		VALUES (?1, ?2, ?1, ?3, ?4, ?5, ?6, ?9) ON CONFLICT (key) DO NOTHING`,
	linkOf:   `SELECT created, writes, step, leap FROM resources WHERE key = ?1 AND seq = ?2 AND tag = ?3`,
	logWrite: `INSERT INTO log (seq, tag, written, created, writes, prev, jump, key, data) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)`,
	logDelete: `INSERT INTO log (seq, tag, written, created, writes, prev, jump, gone_tag, key, data)
		SELECT ?1, ?2, ?3, created, writes, seq, step, tag, key, data FROM resources
		WHERE key = ?4 AND uid = ?5 AND seq = ?6 AND tag = ?7`,
	deleted: `INSERT INTO gone (key, seq) VALUES (?1, ?2)`,
	remove:  `DELETE FROM resources WHERE key = ?1`,
	// How far a step of pruning goes.
	reach:        `SELECT max(seq) FROM log WHERE seq > ?1 AND seq < ?2 AND written < ?5 AND (seq < ?3 OR written < ?4)`,
	moveFollowed: `UPDATE meta SET followed = max(followed, ?1), horizon = max(horizon, ?1)`,
	outdated: `SELECT seq, prev, key, gone_tag IS NOT NULL,
		coalesce((SELECT length(data) FROM log AS old WHERE old.seq = log.prev), 0) + iif(gone_tag IS NULL, 0, length(data))
		FROM log WHERE seq >= ?1 AND seq < ?2 ORDER BY seq LIMIT ?3`,
	prune:      `DELETE FROM log WHERE seq = ?1`,
	pruneGone:  `DELETE FROM gone WHERE key = ?1 AND seq = ?2`,
	movePruned: `UPDATE meta SET pruned = max(pruned, ?1)`,
	oldest:     `SELECT seq, written FROM log WHERE seq > ?1 ORDER BY seq LIMIT 1`,
	// The length of a blob stands at the row's beginning: its pages are not read.
	weigh: `SELECT seq, length(data) FROM log WHERE seq > ?1 ORDER BY seq`,
	inUse: `SELECT (page_count - freelist_count) * page_size FROM pragma_page_count, pragma_freelist_count, pragma_page_size`,
	find:  `SELECT 1 FROM log WHERE seq = ?1 AND tag = ?2`,
	chain: `SELECT prev, jump FROM log WHERE seq = ?1`,
	// The data only where it is wanted: it may fill many pages.
	logRow:    `SELECT tag, created, writes, prev, gone_tag, iif(?2, data, x'') FROM log WHERE seq = ?1`,
	tagOf:     `SELECT tag FROM log WHERE seq = ?1`,
	readable:  `SELECT horizon, seq, tag FROM meta LEFT JOIN (SELECT seq, tag FROM log ORDER BY seq DESC LIMIT 1)`,
	pastRows:  `SELECT key, seq, tag, created, writes, data FROM resources WHERE key >= ?1 AND key < ?2 ORDER BY key`,
	pastKeys:  `SELECT key, seq, tag, created, writes FROM resources WHERE key >= ?1 AND key < ?2 ORDER BY key`,
	goneFrom:  `SELECT key, seq FROM gone WHERE key >= ?1 AND key < ?2 ORDER BY key, seq LIMIT 1`,
	goneAfter: `SELECT seq FROM gone WHERE key = ?1 AND seq > ?2 ORDER BY seq LIMIT 1`,
}

// role is the configuration of a connection for its purpose.
type role struct {
	flags sqlite3.OpenFlag
	cache int // KiB
	busy  time.Duration
}

// connect opens a connection and reads the database once, so that no other process deletes the -wal file under it. ctx
// interrupts the connection, including its waits for locks here, until the caller sets another interrupt.
func connect(ctx context.Context, path, vfs string, r role) (_ *conn, err error) {
	name, flags := path, r.flags
	if vfs != "" {
		name = "file:" + (&url.URL{Path: path}).EscapedPath() + "?vfs=" + url.QueryEscape(vfs)
		flags |= sqlite3.OPEN_URI
	}
	db, err := sqlite3.OpenFlags(name, flags)
	if err != nil {
		return nil, err
	}
	c := &conn{db: db}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	db.SetInterrupt(ctx)
	if err := db.BusyTimeout(r.busy); err != nil {
		return nil, err
	}
	for _, pragma := range []string{
		// ncruces compiles SQLite to default to NORMAL in WAL mode.
		"synchronous = FULL",
		"cache_size = -" + strconv.Itoa(r.cache),
		"wal_autocheckpoint = 4000",
		"journal_size_limit = 67108864",
		"trusted_schema = OFF",
		"temp_store = MEMORY",
	} {
		if err := db.Exec("PRAGMA " + pragma); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// checkDurable returns an error for a connection that could lose an acknowledged write.
func (c *conn) checkDurable() error {
	for pragma, want := range map[string]string{"journal_mode": "wal", "synchronous": "2"} {
		got, err := c.pragma(pragma)
		if err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("PRAGMA %s is %q, expected %q", pragma, got, want)
		}
	}
	return nil
}

func (c *conn) pragma(text string) (string, error) {
	s, _, err := c.db.Prepare("PRAGMA " + text)
	if err != nil {
		return "", err
	}
	value := ""
	if s.Step() {
		value = strings.ToLower(s.ColumnText(0))
	}
	return value, errors.Join(s.Err(), s.Close())
}

// stmt returns a prepared statement. The caller must Reset it, because an active statement holds a read transaction
// open.
func (c *conn) stmt(q query) (*sqlite3.Stmt, error) {
	if s := c.stmts[q]; s != nil {
		return s, nil
	}
	s, _, err := c.db.PrepareFlags(texts[q], sqlite3.PREPARE_PERSISTENT)
	if err != nil {
		return nil, err
	}
	c.stmts[q] = s
	return s, nil
}

// exec runs a statement without rows.
func (c *conn) exec(q query) error {
	s, err := c.stmt(q)
	if err != nil {
		return err
	}
	return s.Exec()
}

// execWith runs a statement without rows. Its parameters are numbers.
func (c *conn) execWith(q query, params ...int64) error {
	s, err := c.stmt(q)
	if err != nil {
		return err
	}
	for i, param := range params {
		if err := s.BindInt64(i+1, param); err != nil {
			return err
		}
	}
	return s.Exec()
}

// endTransaction rolls back the open transaction, if any, regardless of the connection's interrupt. A transaction may
// be open although BEGIN failed: an interrupt between the execution of a statement and its return makes it fail.
func (c *conn) endTransaction() error {
	c.db.SetInterrupt(context.Background())
	if c.db.GetAutocommit() {
		return nil
	}
	return c.exec(rollback)
}

func (c *conn) close() error {
	for i, s := range c.stmts {
		_ = s.Close() // repeats the error of the last step
		c.stmts[i] = nil
	}
	return c.db.Close()
}

// newest returns the position of the newest row of the log.
func (c *conn) newest() (position, error) {
	s, err := c.stmt(newest)
	if err != nil {
		return position{}, err
	}
	var m position
	if s.Step() {
		m = position{s.ColumnInt64(0), s.ColumnInt64(1)}
	}
	return m, finish(s)
}

// finish resets a statement and returns the error of its last step.
func finish(s *sqlite3.Stmt) error {
	err := s.Err()
	return errors.Join(err, ignoreRepeated(s.Reset(), err))
}

// ignoreRepeated drops an error of Reset that repeats the error of the last step.
func ignoreRepeated(reset, step error) error {
	if step != nil {
		return nil
	}
	return reset
}

func (c *conn) inSnapshot(do func() error) error {
	err := c.exec(begin)
	if err == nil {
		err = do()
	}
	if err == nil {
		err = c.exec(commit)
	}
	if err != nil {
		_ = c.endTransaction() // the first error is more specific
	}
	return err
}
