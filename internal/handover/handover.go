// Package handover says what a store must offer beyond storage.Backend so that its data can be moved to another store while
// programs use it: notes that survive the mover, and a fence behind which nobody writes.
//
// Neither is visible in lists, watches or owner references, and neither changes what a resource's version means. Every adapter
// of this repository implements [Store]; a store without it can be copied, but not moved live.
package handover

import (
	"context"
	"fmt"

	"github.com/ashlar-dev/storage"
)

// Store is a store that can be handed over.
type Store interface {
	Journal
	Fencer
}

// Journal keeps a few small notes by name. A fence does not keep anybody from writing them.
type Journal interface {
	// ReadJournal returns a note and its revision, which changes with every write; nil and "" where there is none. The
	// read is strong.
	ReadJournal(ctx context.Context, name string) (value []byte, revision string, err error)
	// WriteJournal writes a note if it still has that revision ("": if there is none), and returns the new one.
	// Otherwise it returns an error that matches storage.ErrCASFailure. The note is durable when it returns.
	WriteJournal(ctx context.Context, name string, value []byte, revision string) (string, error)
	// DeleteJournal removes a note if it still has that revision. Removing none is fine.
	DeleteJournal(ctx context.Context, name, revision string) error
}

// Fencer can close a store for writing, for all processes that use this module.
type Fencer interface {
	// Fence closes the store. When it has returned no WriteCAS, DeleteCAS or Commit that changes anything succeeds any
	// more, through any handle of any process: they return an error that matches storage.ErrFenced and names target. What
	// succeeded before is visible to a strong read that begins afterwards. A fence that is there already is renamed.
	Fence(ctx context.Context, target string) error
	// Unfence opens the store again. Opening one that is open is fine.
	Unfence(ctx context.Context) error
	// Fenced tells whether the store is closed, and what for.
	Fenced(ctx context.Context) (target string, fenced bool, err error)
}

// Refused is the error of a write to a fenced store.
func Refused(target string) error {
	return fmt.Errorf("%w: it has moved to %s", storage.ErrFenced, target)
}

// Conflict is the error of WriteJournal and DeleteJournal where the note has another revision.
func Conflict(name string) error {
	return fmt.Errorf("journal note %q: %w", name, storage.ErrCASFailure)
}

// The most that adapters have to take.
const (
	MaxName  = 64       // bytes of a note's name: lower-case letters and dashes
	MaxValue = 64 << 10 // bytes of a note
)
