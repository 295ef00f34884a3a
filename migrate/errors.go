package migrate

import "errors"

// Errors of a migration, for errors.Is.
var (
	// ErrNotEmpty means that the target has resources and Options.Into does not decide about them.
	ErrNotEmpty = errors.New("the target is not empty")
	// ErrConflict means that the target has a different resource under a key of the source, and may not replace it.
	ErrConflict = errors.New("the target holds something else under the same key")
	// ErrBusy means that the target takes part in another migration, or that another process is working on this migration.
	ErrBusy = errors.New("the target takes part in another migration")
	// ErrSuperseded means that another process has continued this migration, and this process has stopped.
	ErrSuperseded = errors.New("another process has taken over this migration")
	// ErrDiffers means that the two sides are not equal at the end.
	ErrDiffers = errors.New("source and target differ")
	// ErrUnsupported means that a store lacks a required ability, which the error names.
	ErrUnsupported = errors.New("the store does not support this")
)

// errStuck means that the same call can only fail again: abort the migration, and start another.
var errStuck = errors.New("abort this migration and start another, preferably into an empty store")

// errJournalLost means that the target's journal is older than what this process has written: the database has lost its last changes.
var errJournalLost = errors.New("the target has lost changes, as by a fail-over or a restore: continue from its journal by the same call")

// errElsewhere means that another migration has closed the source. Only that migration may open it.
var errElsewhere = errors.New("the source is closed for another migration")

// errOpened means that another program has opened the source during the cutover.
var errOpened = errors.New("another program opened the source for writing during the cutover")
