package handover

import "context"

// EpochFencer is a Fencer whose calls can depend on nobody else having opened or closed the store in between. Without it, a
// process that was frozen for long may close a store that others have opened again, or the other way round.
//
// Every successful Fence, Unfence, FenceAt and UnfenceAt gives the fence another epoch, also where the store is open, or closed,
// already. No epoch comes again.
type EpochFencer interface {
	Fencer
	// FenceState is Fenced, with the epoch: "" in a store that was never closed or opened. The read is strong.
	FenceState(ctx context.Context) (FenceState, error)
	// FenceAt is Fence if the fence has that epoch, and returns the next one. Otherwise it changes nothing and returns an
	// error that matches storage.ErrCASFailure.
	FenceAt(ctx context.Context, target, epoch string) (next string, err error)
	// UnfenceAt is Unfence if the fence has that epoch, and returns the next one. Otherwise it changes nothing and returns
	// an error that matches storage.ErrCASFailure.
	UnfenceAt(ctx context.Context, epoch string) (next string, err error)
}

// FenceState is the state of a fence.
type FenceState struct {
	Target string // the store that the data has moved to
	Closed bool
	Epoch  string
}

// FenceNote is the name of the journal's note whose revision is the fence's epoch, in stores that have no better place for it.
// No other note has a name like it.
const FenceNote = "~fence-epoch"
