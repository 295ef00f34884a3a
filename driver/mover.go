package driver

import (
	"context"
	"fmt"

	"github.com/ashlar-dev/storage"
)

// Mover is a Driver whose data can be moved to another store while programs use it: it keeps a few small notes beside the data, and
// can be closed for writing. Neither shows in lists, watches or children, and neither changes what a version means. A fence does not
// keep anybody from writing notes.
//
// Apply of a closed store returns an error of [FenceError]; a Delete or a Check that changes nothing may succeed.
//
// A tool that moves data finds the Mover of a backend by storage.As; that one's methods are as safe to call as the backend's: they
// return storage.ErrClosed after Close, have a deadline, and say in errors what was to be done. The same holds for [GuardedMover]
// and [Bulk]. The topic Mover of package conformance tests them.
type Mover interface {
	// ReadNote returns a note and its revision, which changes with every write; nil and "" where there is none. The read is strong.
	ReadNote(ctx context.Context, name string) (value []byte, revision string, err error)
	// WriteNote writes a note, durably, if it still has that revision ("": if there is none), and returns the new one. Otherwise
	// it returns an error of [Conflict].
	WriteNote(ctx context.Context, name string, value []byte, revision string) (next string, err error)
	// DeleteNote removes a note if it still has that revision; otherwise it returns an error of [Conflict]. Removing none is fine.
	DeleteNote(ctx context.Context, name, revision string) error

	// Fence returns whether the store is closed, and the fence's epoch. The read is strong.
	Fence(ctx context.Context) (FenceState, error)
	// SetFence closes the store, or opens it where target is nil; one that is closed already gets another target. When it has
	// returned, no Apply that changes something succeeds any more, through any handle of any process, or none is refused. What
	// succeeded before it closed the store is visible to strong reads that begin afterwards.
	SetFence(ctx context.Context, target *string) error
}

// GuardedMover is a Mover that can make each change depend on what has happened since: of the fence on its epoch, of resources on a
// note. Without it, a process that was frozen for long may do harm when it wakes, and a migration depends on time.
type GuardedMover interface {
	Mover
	// SetFenceAt is SetFence if the fence has that epoch, and returns the next one. Otherwise it changes nothing and returns an
	// error of [Conflict]. Every SetFence and SetFenceAt that succeeds gives the fence another epoch, even if nothing else
	// changed. No epoch comes again.
	SetFenceAt(ctx context.Context, target *string, epoch string) (next string, err error)
	// Guards marks a driver whose Apply and Load compare what [GuardOf] returns in the same atomic step as they make a change,
	// and return Guard.Superseded if it does not hold, or what the mutations would have come to without changing anything.
	Guards()
}

// FenceState is the state of a store's fence.
type FenceState struct {
	Target string // the store that the data has moved to
	Closed bool
	Epoch  string // "" in a store that was never closed or opened; without meaning where the driver is no GuardedMover
}

// FenceNote is the name of the note whose revision can be the fence's epoch, in a store that has no better place for it. No other
// note has a name like it.
const FenceNote = "~fence-epoch"

// The largest note that a Mover has to take. The tier refuses a name that is empty, longer or has other characters by
// storage.ErrInvalid, and a larger value by storage.ErrTooLarge, before the driver is asked.
const (
	MaxNoteName = 64       // bytes of its name: lower-case letters and dashes
	MaxNote     = 64 << 10 // bytes of its value
)

// FenceError is the error of Apply in a store that is closed for writing. It matches storage.ErrFenced.
func FenceError(target string) error {
	return fmt.Errorf("%w: it has moved to %s", storage.ErrFenced, target)
}

// Conflict is the error for a note, or a fence, that has another revision. It matches storage.ErrCASFailure.
func Conflict(name string) error {
	return fmt.Errorf("journal note %q: %w", name, storage.ErrCASFailure)
}
