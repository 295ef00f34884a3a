package driver

import (
	"context"
	"fmt"

	"github.com/ashlar-dev/storage"
)

// Mover is a Driver whose data can be moved to another store while programs use it. It stores a few small notes beside the data,
// and can be closed for writing. Notes and the fence are invisible in lists, watches and children, and do not change the meaning of
// a version. A closed store still accepts notes.
//
// Apply of a closed store returns the error of [Fence.Refusal]; a Delete or a Check that changes nothing may succeed.
//
// A tool that moves data finds the Mover of a backend by storage.As. The methods of such a Mover return storage.ErrClosed after
// Close, have a deadline, and name the operation in errors, as the backend's own methods do. The same holds for [GuardedMover] and
// [Bulk]. The topic Mover of package conformance tests them.
type Mover interface {
	// ReadNote returns a note and its revision, which changes with every write; nil and "" if there is none. The read is strong.
	ReadNote(ctx context.Context, name string) (value []byte, revision string, err error)
	// WriteNote writes a note durably if the note still has that revision, or if there is none and revision is "". It returns the
	// new revision. Otherwise it returns the error of [Conflict].
	WriteNote(ctx context.Context, name string, value []byte, revision string) (next string, err error)
	// DeleteNote deletes a note if it still has that revision. Otherwise it returns the error of [Conflict]. Deleting an absent
	// note succeeds.
	DeleteNote(ctx context.Context, name, revision string) error

	// Fence returns the state and the epoch of the fence. The read is strong.
	Fence(ctx context.Context) (FenceState, error)
	// SetFence closes the store, or opens it if target is nil. A closed store gets the new target. After SetFence has closed the
	// store, no Apply with a change succeeds any more, through any handle of any process; after it has opened the store, none is
	// refused. A change that succeeded before the store was closed is visible to strong reads that begin afterwards.
	SetFence(ctx context.Context, target *string) error
}

// GuardedMover is a Mover that can make each change conditional: a change of the fence on its epoch, a change of resources on a
// note. Without it, a process that was frozen for a long time may do harm when it continues, and a migration depends on time.
type GuardedMover interface {
	Mover
	// SetFenceAt closes the store with a fence, or opens it if fence is nil, as SetFence does, on the condition that the fence has
	// that epoch. It returns the next epoch. Otherwise it changes nothing and returns the error of [Conflict]. Every successful
	// SetFence and SetFenceAt gives the fence a new epoch, even if nothing else changed. Epochs never repeat.
	//
	// Fence.Refusal decides which calls of Apply and Load the fence refuses. A call that the fence admits checks its guard. A strong Get
	// or List, and a Page, ReadAt or Snapshot that is asked to, return Fence.ReadError if the store had moved when it was read.
	// The backend ends watches of a store that has moved, if the driver's Source is a Prover. Another Source does so itself.
	SetFenceAt(ctx context.Context, fence *Fence, epoch string) (next string, err error)
	// Guards marks a driver whose Apply and Load check the guard of [GuardOf] in the same atomic step as they make a change. If the
	// guard does not hold, they return Guard.Superseded, or the result that the mutations would have had without changing anything.
	Guards()
}

// FenceState is the state of a store's fence.
type FenceState struct {
	Fence  // of a closed store, or of one that is about to be closed if the fence is announced
	Closed bool
	// Announced reports that a call is closing the store, or has ended without withdrawing its announcement. The store accepts
	// writes, which may cost more. Only drivers that take time to close a store announce that.
	Announced bool
	Epoch     string // "" in a store that was never closed or opened; undefined if the driver is no GuardedMover
}

// FenceNote is the name of the note whose revision can serve as the fence's epoch, in a store that has no better place for it. No
// other note has a name of this form.
const FenceNote = "~fence-epoch"

// The largest note that every Mover must accept. Package driver/backend refuses a name that is empty, longer or has other
// characters with storage.ErrInvalid, and a larger value with storage.ErrTooLarge, without calling the driver.
const (
	MaxNoteName = 64       // bytes of its name: lower-case letters and dashes
	MaxNote     = 64 << 10 // bytes of its value
)

// Conflict returns the error for a note or a fence that has another revision. It matches storage.ErrCASFailure.
func Conflict(name string) error {
	return fmt.Errorf("journal note %q: %w", name, storage.ErrCASFailure)
}
