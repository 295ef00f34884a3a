package sqlite

import (
	"context"
	"errors"
	"fmt"

	"github.com/ncruces/go-sqlite3"

	"github.com/ashlar-dev/storage"
)

// tooLate is the error of a call that ran out of time after it was sent.
func tooLate(ctx context.Context) error {
	return fmt.Errorf("%w: %w", storage.ErrInconsistent, ctx.Err())
}

// failed is the error of a statement that only reads. ctx is what the connection was interrupted by.
func failed(ctx context.Context, what string, err error) error {
	switch {
	case ctx.Err() != nil && (errors.Is(err, sqlite3.INTERRUPT) || errors.Is(err, sqlite3.BUSY)): // the end of ctx ends a wait for a lock too
		return fmt.Errorf("%s: %w", what, tooLate(ctx))
	case errors.Is(err, sqlite3.NOTADB):
		return fmt.Errorf("%s: %w: %w", what, errNoDatabase, err)
	case errors.Is(err, sqlite3.BUSY), errors.Is(err, sqlite3.LOCKED), errors.Is(err, sqlite3.PROTOCOL), errors.Is(err, sqlite3.IOERR):
		return fmt.Errorf("%s: %w: %w", what, storage.ErrInconsistent, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// leastRoom is what a transaction may need to grow the files by before anything else would fail.
const leastRoom = 64 << 10

// onFullDisk adds to an error of the disk that there is no room on it, which the driver's own error does not say.
func onFullDisk(folder string, err error) error {
	if free, known := freeBytes(folder); known && free < leastRoom && errors.Is(err, sqlite3.IOERR) {
		return fmt.Errorf("no space left on the disk of %s: %w", folder, err)
	}
	return err
}
