package sqlite

import (
	"context"
	"errors"
	"fmt"

	"github.com/ncruces/go-sqlite3"

	"github.com/ashlar-dev/storage"
)

// timeoutError returns the error of a call whose context ended after it was sent.
func timeoutError(ctx context.Context) error {
	return fmt.Errorf("%w: %w", storage.ErrInconsistent, ctx.Err())
}

// statementError returns the error of a read. ctx is the context that interrupted the connection.
func statementError(ctx context.Context, operation string, err error) error {
	switch {
	case ctx.Err() != nil && (errors.Is(err, sqlite3.INTERRUPT) || errors.Is(err, sqlite3.BUSY)): // the end of ctx also ends a wait for a lock
		return fmt.Errorf("%s: %w", operation, timeoutError(ctx))
	case errors.Is(err, sqlite3.NOTADB):
		return fmt.Errorf("%s: %w: %w", operation, errNoDatabase, err)
	case errors.Is(err, sqlite3.BUSY), errors.Is(err, sqlite3.LOCKED), errors.Is(err, sqlite3.PROTOCOL), errors.Is(err, sqlite3.IOERR):
		return fmt.Errorf("%s: %w: %w", operation, storage.ErrInconsistent, err)
	}
	return fmt.Errorf("%s: %w", operation, err)
}

// minFreeSpace is the space that a transaction may need to grow the files. With less, the disk counts as full.
const minFreeSpace = 64 << 10

// withDiskFull adds to an I/O error that the disk is full, because SQLite's own error omits it.
func withDiskFull(folder string, err error) error {
	if free, known := freeBytes(folder); known && free < minFreeSpace && errors.Is(err, sqlite3.IOERR) {
		return fmt.Errorf("no space left on the disk of %s: %w", folder, err)
	}
	return err
}

var errRestored = fmt.Errorf("%w: the log no longer has the row of the position: it was pruned, or an older copy of the file was restored", storage.ErrCompacted)

// errDamaged ends all watches at once, because it is unknown which of them match the row. Skipping the row would be a
// silent gap, and waiting does not repair it. A new list continues after the row.
var errDamaged = fmt.Errorf("%w: a row of the log is damaged", storage.ErrCompacted)

// errMissingRow reports that the log lacks a row that the store refers to.
var errMissingRow = fmt.Errorf("%w: a row of the log is missing", storage.ErrCompacted)

var errNoDatabase = errors.New("the file is not a SQLite database, or is damaged")

// errReplaced ends the use of a store whose files another program has replaced or deleted.
var errReplaced = errors.New("a file of the open store was changed by another program")

var errStopped = errors.New("stopped")

// errUnknownOutcome reports that a failed commit has not taken effect so far, but that a recovery after a crash may
// restore it.
var errUnknownOutcome = errors.New("the commit failed with an unknown outcome")

// errCommitted reports that a commit took effect although it failed.
var errCommitted = errors.New("the commit has taken effect")
