package sqlite

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/ncruces/go-sqlite3"
)

//go:embed sql/*.sql
var sqlFiles embed.FS

// statementText returns the SQL in a file of folder sql, without the leading comment that gives the reason for it.
func statementText(name string) string {
	b, err := sqlFiles.ReadFile("sql/" + name + ".sql")
	if err != nil {
		panic(err) // a test checks all names
	}
	for bytes.HasPrefix(b, []byte("--")) {
		_, b, _ = bytes.Cut(b, []byte("\n"))
	}
	return string(b)
}

// conn is a connection with its prepared statements. It must be used by one goroutine at a time.
type conn struct {
	db     *sqlite3.Conn
	stmts  map[string]*sqlite3.Stmt
	fences map[*sqlite3.Stmt]seenFence // see checkMoved
	files  *storeFiles                 // nil until the connection is open
}

// seenFence is the fence at a number of compilations of a statement.
type seenFence struct {
	text         string
	compilations int
}

// role is the configuration of a connection for its purpose.
type role struct {
	cache int // KiB
	busy  time.Duration
}

// connect opens a connection and reads the database once, so that no other process deletes the -wal file under it. ctx
// interrupts the connection, including its waits for locks here, until the caller sets another interrupt.
func connect(ctx context.Context, path, vfs string, r role) (_ *conn, err error) {
	name, flags := path, sqlite3.OPEN_READWRITE
	if vfs != "" {
		name = "file:" + (&url.URL{Path: path}).EscapedPath() + "?vfs=" + url.QueryEscape(vfs)
		flags |= sqlite3.OPEN_URI
	}
	db, err := sqlite3.OpenFlags(name, flags)
	if err != nil {
		return nil, err
	}
	c := &conn{db: db, stmts: map[string]*sqlite3.Stmt{}, fences: map[*sqlite3.Stmt]seenFence{}}
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

// query returns a statement of folder sql with its parameters bound. The caller must Reset it, because an active statement
// holds a read transaction open.
func (c *conn) query(name string, params ...any) (*sqlite3.Stmt, error) {
	s := c.stmts[name]
	if s == nil {
		var err error
		if s, _, err = c.db.PrepareFlags(statementText(name), sqlite3.PREPARE_PERSISTENT); err != nil {
			return nil, err
		}
		c.stmts[name] = s
	}
	for i, param := range params {
		if err := bind(s, i+1, param); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// bind binds a parameter. A nil []byte is an empty blob, a nil interface is NULL.
func bind(s *sqlite3.Stmt, number int, param any) error {
	switch param := param.(type) {
	case int64:
		return s.BindInt64(number, param)
	case string:
		return s.BindText(number, param)
	case []byte:
		return s.BindBlob(number, param)
	case bool:
		return s.BindBool(number, param)
	default:
		return s.BindNull(number)
	}
}

// queryRow runs a statement that returns at most one row, calls scan with it and reports whether there is one.
func (c *conn) queryRow(name string, scan func(*sqlite3.Stmt), params ...any) (exists bool, err error) {
	s, err := c.query(name, params...)
	if err != nil {
		return false, err
	}
	if exists = s.Step(); exists {
		scan(s)
	}
	return exists, finish(s)
}

// lastDataVersion returns the number of the database's state in the current transaction, or at the end of the last one.
// Each commit changes it, of this connection and of others.
func (c *conn) lastDataVersion() (uint32, error) {
	version, err := c.db.FileControl("", sqlite3.FCNTL_DATA_VERSION)
	if err != nil {
		return 0, err
	}
	return version.(uint32), nil
}

// exec runs a statement without rows.
func (c *conn) exec(name string, params ...any) error {
	s, err := c.query(name, params...)
	if err != nil {
		return err
	}
	return s.Exec()
}

// script runs the statements of a file, which have no parameters.
func (c *conn) script(name string) error { return c.db.Exec(statementText(name)) }

// endTransaction rolls back the open transaction, if any, regardless of the connection's interrupt. A transaction may
// be open although BEGIN failed: an interrupt between the execution of a statement and its return makes it fail.
func (c *conn) endTransaction() error {
	c.db.SetInterrupt(context.Background())
	if c.db.GetAutocommit() {
		return nil
	}
	return c.exec("rollback")
}

func (c *conn) close() error {
	for _, s := range c.stmts {
		_ = s.Close() // repeats the error of the last step
	}
	clear(c.stmts)
	clear(c.fences)
	if c.files != nil && c.files.check() != nil {
		// Otherwise SQLite could write an outdated -wal file into the database, or delete another process's -wal file.
		if _, err := c.db.Config(sqlite3.DBCONFIG_NO_CKPT_ON_CLOSE, true); err != nil {
			return err // leave the connection open
		}
	}
	return c.db.Close()
}

// newest returns the position of the newest row of the log.
func (c *conn) newest() (m position, err error) {
	_, err = c.queryRow("newest-row", func(s *sqlite3.Stmt) { m = position{s.ColumnInt64(0), s.ColumnInt64(1)} })
	return m, err
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
	err := c.exec("begin")
	if err == nil {
		err = do()
	}
	if err == nil {
		err = c.exec("commit")
	}
	if err != nil {
		_ = c.endTransaction() // the first error is more specific
	}
	return err
}
