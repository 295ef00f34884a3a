package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/ashlar-dev/storage"
)

// Path returns the absolute path of the database file.
func (b *Backend) Path() string { return b.handle.path }

// Backup writes a compact copy of the store, as of one moment, to a new file. It does not block writers.
//
// To restore it, close the store in all processes, replace the database file by the copy, and delete the -wal and -shm
// files beside it. Versions assigned after the backup never repeat, and a watch resumed from a later cursor fails with
// storage.ErrCompacted.
func (b *Backend) Backup(ctx context.Context, to string) error {
	s := b.handle
	if s.writer.isClosing() {
		return storage.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if _, err := os.Lstat(to); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("back up to %s: the file already exists", to)
	}
	// Use a new connection, because reading connections may not write to any file.
	c, err := s.connect(ctx, 2<<10)
	if err != nil {
		return fmt.Errorf("back up to %s: %w", to, statementError(ctx, "open another connection", err))
	}
	if err := errors.Join(c.exec("backup", to), c.close(), syncFolder(to)); err != nil {
		return fmt.Errorf("back up to %s: %w", to, statementError(ctx, "copy", err))
	}
	return nil
}
