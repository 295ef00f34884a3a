package driver

import (
	"context"

	"github.com/ashlar-dev/storage/internal/handover"
)

// Mover is a Driver whose data can be moved to another store while programs use it: it keeps a few small notes beside the data, and
// can be closed for writing. Neither shows in lists, watches or children, and neither changes what a version means.
//
// Apply of a closed store returns an error of [Refused]; a Delete or a Check that changes nothing may succeed.
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
	// returned, no Apply that changes something succeeds any more, through any handle of any process, or none is refused.
	SetFence(ctx context.Context, target *string) error
}

// GuardedMover is a Mover that can make each change depend on what has happened since: of the fence on its epoch, of resources on a
// note. Without it, a process that was frozen for long may do harm when it wakes, and a migration depends on time.
type GuardedMover interface {
	Mover
	// SetFenceAt is SetFence if the fence has that epoch, and returns the next one, which is new even if nothing else changed.
	// Otherwise it does nothing but return an error of [Conflict]. No epoch comes again.
	SetFenceAt(ctx context.Context, target *string, epoch string) (next string, err error)
	// Guards marks a driver whose Apply and Load compare what [GuardOf] returns in the same atomic step as they make a change,
	// and return Guard.Superseded if it does not hold, or what the mutations would have come to without changing anything.
	Guards()
}

// FenceState is the state of a store's fence: Target, a string, Closed, and the Epoch, a string.
type FenceState = handover.FenceState

// FenceNote is the name of the note whose revision can be the fence's epoch, in a store that has no better place for it.
const FenceNote = handover.FenceNote

// Guard is a condition on an Apply: a note has a revision. Its fields Note and Revision are strings.
type Guard = handover.Guard

// GuardOf returns the guard that Apply's context carries, nil for none.
func GuardOf(ctx context.Context) *Guard { return handover.GuardOf(ctx) }

// Refused is the error of Apply in a store that is closed for writing.
func Refused(target string) error { return handover.Refused(target) }

// Conflict is the error for a note or a fence that has another revision.
func Conflict(name string) error { return handover.Conflict(name) }

// Row is a resource as a store keeps it: its Key, its Version, and as Data the bytes of [Encode].
type Row = handover.Row

// BulkReader is a Driver that reads a whole store in less time than pages of one snapshot take.
type BulkReader interface {
	// ReadAfter returns what is stored, at one moment during the call, under the keys that follow the one whose bytes are given
	// (nil: under all), in the order of keys: at most limit rows, fewer where they are large, none only if there are none. The
	// read is strong.
	ReadAfter(ctx context.Context, after []byte, limit int) ([]Row, error)
}

// ReadBytes is the number of bytes after which ReadAfter returns what it has.
const ReadBytes = handover.ReadBytes

// Loader is a Driver that creates many resources in less time than Apply.
type Loader interface {
	// Load creates resources that are not there, all of them or none, whatever versions the rows have; watches see them as they
	// see others. If one is there already, Load fails; if an answer is lost, Load may fail because of what it did itself.
	Load(ctx context.Context, rows []Row) error
}
