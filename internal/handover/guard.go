package handover

import (
	"context"
	"errors"
	"fmt"
)

// ErrSuperseded is the error of a write whose guard does not hold: the note has been written or deleted since its revision was
// read. Nothing was changed.
var ErrSuperseded = errors.New("another process has taken over")

// Guarder is a store that compares a note of its journal in the transaction of a write. A process that was frozen, or a request
// that was held up on the way, then changes nothing once somebody else has written the note, however late it arrives. Without
// it, a mover depends on the time that passes between a look at the journal and the write.
type Guarder interface {
	// WithGuard returns a context for WriteCAS, DeleteCAS, Commit and Loader.Load of this store. With it, they change
	// something only if the note has that revision at the moment of the change; otherwise they return an error that matches
	// ErrSuperseded, or what the operation would have come to without changing anything.
	WithGuard(ctx context.Context, note, revision string) context.Context
}

// Guard is the condition that a context carries.
type Guard struct{ Note, Revision string }

type guardKey struct{}

// Guarded returns a context that carries a guard. It is what WithGuard is made of.
func Guarded(ctx context.Context, note, revision string) context.Context {
	return context.WithValue(ctx, guardKey{}, &Guard{note, revision})
}

// GuardOf returns the guard that a context carries, nil for none.
func GuardOf(ctx context.Context) *Guard {
	g, _ := ctx.Value(guardKey{}).(*Guard)
	return g
}

// Superseded is the error of a write whose guard does not hold.
func (g *Guard) Superseded() error { return fmt.Errorf("journal note %q: %w", g.Note, ErrSuperseded) }
