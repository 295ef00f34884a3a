package sqlite

import (
	"context"
	"errors"
	"fmt"

	"github.com/ncruces/go-sqlite3"

	"github.com/ashlar-dev/storage"
)

// timeoutError is the error of a call that ran out of time after it was sent.
func timeoutError(ctx context.Context) error {
	return fmt.Errorf("%w: %w", storage.ErrInconsistent, ctx.Err())
}

// statementError is the error of a statement that only reads. ctx is what the connection was interrupted by.
func statementError(ctx context.Context, what string, err error) error {
	switch {
	case ctx.Err() != nil && (errors.Is(err, sqlite3.INTERRUPT) || errors.Is(err, sqlite3.BUSY)): // the end of ctx ends a wait for a lock too
		return fmt.Errorf("%s: %w", what, timeoutError(ctx))
	case errors.Is(err, sqlite3.NOTADB):
		return fmt.Errorf("%s: %w: %w", what, errNoDatabase, err)
	case errors.Is(err, sqlite3.BUSY), errors.Is(err, sqlite3.LOCKED), errors.Is(err, sqlite3.PROTOCOL), errors.Is(err, sqlite3.IOERR):
		return fmt.Errorf("%s: %w: %w", what, storage.ErrInconsistent, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// minFreeSpace is what a transaction may need to grow the files by before anything else would fail.
const minFreeSpace = 64 << 10

// withDiskFull adds to an error of the disk that there is no room on it, which the driver's own error does not say.
func withDiskFull(folder string, err error) error {
	if free, known := freeBytes(folder); known && free < minFreeSpace && errors.Is(err, sqlite3.IOERR) {
		return fmt.Errorf("no space left on the disk of %s: %w", folder, err)
	}
	return err
}

var errRestored = fmt.Errorf("%w: the log no longer holds the position: it was pruned, or an older copy of the file was restored", storage.ErrCompacted)

// errDamaged ends watches at once, as nobody knows which of them want the row: leaving it out would be a gap that nobody hears of,
// and no waiting mends it. Whoever lists again goes on behind it.
var errDamaged = fmt.Errorf("%w: a row of the log is damaged", storage.ErrCompacted)

// errMissingRow is the error of a row that has to be there and is not.
var errMissingRow = fmt.Errorf("%w: a row of the log is missing", storage.ErrCompacted)

var errNoDatabase = errors.New("the file is not a SQLite database, or is damaged")

var errStopped = errors.New("stopped")

// errUnknownOutcome says that what a failed commit has written may be found by a recovery after a crash, although nobody sees it now.
var errUnknownOutcome = errors.New("the commit failed on its way to the disk")

// errCommitted says that a commit which failed has taken effect after all.
var errCommitted = errors.New("the commit has taken effect")

func ignoreCode(err error, code sqlite3.ErrorCode) error {
	if errors.Is(err, code) {
		return nil
	}
	return err
}
