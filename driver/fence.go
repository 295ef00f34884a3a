package driver

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/ashlar-dev/storage"
)

// Fence is the value of a closed fence: the reason why a store refuses writes.
type Fence struct {
	// Target is the name of the store to which the data moves. If Admits is set, it is the name of the store from which the data
	// comes.
	Target string `json:"target"`
	// Admits is the name of a note, or "". Writes with a guard on this note are allowed while the guard holds: the store is being
	// filled by the tool that owns the note.
	Admits string `json:"admits,omitempty"`
	// Moved reports that the data has moved to the target, for good. Identity and Cursor are those of storage.MovedError.
	Moved    bool   `json:"moved,omitempty"`
	Identity string `json:"identity,omitempty"`
	Cursor   string `json:"cursor,omitempty"`
}

// Move returns the error of a store that has moved, or nil.
func (f Fence) Move() error {
	if !f.Moved {
		return nil
	}
	return &storage.MovedError{Target: f.Target, Identity: f.Identity, Cursor: f.Cursor}
}

// encodedFence is the beginning of an encoded fence that has more than a target. Earlier programs stored the target alone.
const encodedFence = `{"target":`

// Encode returns the fence as text, for storing.
func (f Fence) Encode() string {
	if f == (Fence{Target: f.Target}) && !strings.HasPrefix(f.Target, encodedFence) {
		return f.Target
	}
	text, err := json.Marshal(f)
	if err != nil {
		panic(err) // strings can always be encoded
	}
	return string(text)
}

// DecodeFence is the inverse of Fence.Encode.
func DecodeFence(text string) Fence {
	var f Fence
	if !strings.HasPrefix(text, encodedFence) || json.Unmarshal([]byte(text), &f) != nil {
		return Fence{Target: text}
	}
	return f
}

// Refusal returns the error of an Apply or a Load in a store with this fence, or nil if the fence admits writes under the guard. It
// does not check whether the guard holds.
func (f Fence) Refusal(g *Guard) error {
	switch {
	case f.Moved:
		return f.Move()
	case f.Admits == "":
		return FenceError(f.Target)
	case g == nil || g.Note != f.Admits:
		return fmt.Errorf("%w: it is being filled from %s, and opens when the migration is complete", storage.ErrFenced, f.Target)
	}
	return nil
}

type movedReads struct{}

// WithMovedReads returns a context for strong reads of the last state of a store that has moved. A tool that compares it with the other
// store uses it.
func WithMovedReads(ctx context.Context) context.Context {
	return context.WithValue(ctx, movedReads{}, true)
}

type exactCursor struct{}

// WithExactCursor returns a context for a WatchList whose cursor, at the end of the snapshot, must be after everything that was acknowledged
// before the call. Otherwise an adapter that has no such position at once may return an earlier one, after which a watch repeats changes.
func WithExactCursor(ctx context.Context) context.Context {
	return context.WithValue(ctx, exactCursor{}, true)
}

// NeedsExactCursor reports whether a context is one of WithExactCursor.
func NeedsExactCursor(ctx context.Context) bool { return ctx.Value(exactCursor{}) != nil }

// ReadError returns the error of a strong read in a store with this fence, or nil.
func (f Fence) ReadError(ctx context.Context) error {
	if !f.Moved || ctx.Value(movedReads{}) != nil {
		return nil
	}
	return f.Move()
}

// FenceError returns the error of Apply in a store that has moved to a target. It matches storage.ErrFenced.
func FenceError(target string) error {
	return fmt.Errorf("%w: it has moved to %s", storage.ErrFenced, target)
}

type newStoreFence struct{}

// WithNewStoreFence returns a context for opening a store. If the adapter creates the store, and closing a store takes long, the store is
// closed with the fence from the beginning. Other adapters ignore it. A tool that creates the target of a migration uses it.
func WithNewStoreFence(ctx context.Context, fence Fence) context.Context {
	return context.WithValue(ctx, newStoreFence{}, fence)
}

// NewStoreFence returns the fence of a store that is created under a context, or nil.
func NewStoreFence(ctx context.Context) *Fence {
	if fence, ok := ctx.Value(newStoreFence{}).(Fence); ok {
		return &fence
	}
	return nil
}
