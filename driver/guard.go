package driver

import (
	"context"
	"errors"
	"fmt"
)

// ErrSuperseded reports that a change was refused because its guard does not hold: the note was written or deleted after its
// revision was read. Nothing was changed.
var ErrSuperseded = errors.New("another process has taken over")

// Guard is a condition on an Apply or a Load: a note has a revision. Once another process has written the note, a process that was
// frozen, or a request that was delayed, changes nothing, however late it arrives.
type Guard struct{ Note, Revision string }

type guardKey struct{}

// WithGuard returns a context for the calls of a backend whose driver is a [GuardedMover]. With it, a call changes resources only
// if the guard holds at the moment of the change. Otherwise the call returns an error that matches [ErrSuperseded], or the result
// that it would have had without changing anything. Other backends ignore the guard.
func WithGuard(ctx context.Context, g Guard) context.Context {
	return context.WithValue(ctx, guardKey{}, &g)
}

// GuardOf returns the guard in the context of an Apply or a Load, or nil.
func GuardOf(ctx context.Context) *Guard {
	g, _ := ctx.Value(guardKey{}).(*Guard)
	return g
}

// Superseded returns the error of a change whose guard does not hold.
func (g *Guard) Superseded() error { return fmt.Errorf("journal note %q: %w", g.Note, ErrSuperseded) }
