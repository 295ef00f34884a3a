package driver

import (
	"context"
	"errors"
	"fmt"
)

// ErrSuperseded is the error of a change whose guard does not hold: the note has been written or deleted since its revision was read.
// Nothing was changed.
var ErrSuperseded = errors.New("another process has taken over")

// Guard is a condition on an Apply or a Load: a note has a revision. A process that was frozen, or a request that was held up on the
// way, then changes nothing once another process has written the note, however late it arrives.
type Guard struct{ Note, Revision string }

type guardKey struct{}

// WithGuard returns a context for the calls of a backend whose driver is a [GuardedMover]: those that change resources do so only if
// the guard holds at the moment of the change. Otherwise they return an error that matches [ErrSuperseded], or what the call would
// have come to without changing anything. Other backends ignore the guard.
func WithGuard(ctx context.Context, g Guard) context.Context {
	return context.WithValue(ctx, guardKey{}, &g)
}

// GuardOf returns the guard that Apply's or Load's context carries, nil for none.
func GuardOf(ctx context.Context) *Guard {
	g, _ := ctx.Value(guardKey{}).(*Guard)
	return g
}

// Superseded is the error of a change whose guard does not hold.
func (g *Guard) Superseded() error { return fmt.Errorf("journal note %q: %w", g.Note, ErrSuperseded) }
