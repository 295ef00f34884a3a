package migrate

import (
	"context"
	"fmt"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/handover"
)

// Status is what a store remembers about the migration that it is the target of.
type Status struct {
	// From and To are the names of the stores.
	From, To string
	// Phase is how far it is.
	Phase Phase
	// Live tells whether it follows the source's changes.
	Live bool
	// Started is when it began, Updated when it last gave a sign of life.
	Started, Updated time.Time
	// Resources is what the target held at the end.
	Resources int
}

// Look returns what a store remembers about the migration that it is the target of, nil for nothing.
func Look(ctx context.Context, to storage.Backend) (*Status, error) {
	store, err := handed(to)
	if err != nil {
		return nil, err
	}
	s, _, err := readState(ctx, store)
	if err != nil || s == nil {
		return nil, err
	}
	return &Status{
		From: s.From, To: s.To, Phase: s.Phase, Live: s.Live, Started: s.Started, Updated: s.Updated, Resources: s.Resources,
	}, nil
}

// Abort gives up a migration that is not complete: the source is opened for writing, should it have been closed already, and the
// target forgets about it. What was copied stays in the target. A process still at work on it stops by itself.
func Abort(ctx context.Context, from, to storage.Backend) error {
	source, err := handed(from)
	if err != nil {
		return fmt.Errorf("source: %w", err)
	}
	target, err := handed(to)
	if err != nil {
		return fmt.Errorf("target: %w", err)
	}
	s, revision, err := readState(ctx, target)
	if err != nil {
		return fmt.Errorf("target: %w", err)
	}
	if s == nil {
		return fmt.Errorf("%w: the target takes part in no migration", storage.ErrInvalid)
	}
	id, _, err := source.ReadJournal(ctx, identityNote)
	if err != nil {
		return fmt.Errorf("source: %w", err)
	}
	switch {
	case s.Source != string(id):
		return fmt.Errorf("%w: the target's migration is one from %s", ErrBusy, s.From)
	case s.Phase == Complete:
		return fmt.Errorf("%w: the migration is complete; to go back, unfence the old store and migrate into it with Mirror", storage.ErrInvalid)
	}
	// The note first: whoever is at work on it must not close the source again.
	if err := target.DeleteJournal(ctx, migrationNote, revision); err != nil {
		return fmt.Errorf("target: %w (is a process at work on it? stop it first)", err)
	}
	if err := source.Unfence(ctx); err != nil {
		return fmt.Errorf("source: %w (unfence it)", err)
	}
	return nil
}

// Unfence opens a store for writing that a migration has closed.
func Unfence(ctx context.Context, b storage.Backend) error {
	store, err := handed(b)
	if err != nil {
		return err
	}
	return store.Unfence(ctx)
}

// Fenced tells whether a store was closed for writing, and where its data went.
func Fenced(ctx context.Context, b storage.Backend) (target string, fenced bool, err error) {
	store, err := handed(b)
	if err != nil {
		return "", false, err
	}
	return store.Fenced(ctx)
}

func handed(b storage.Backend) (handover.Store, error) {
	store, ok := storage.As[handover.Store](b)
	if !ok {
		return nil, fmt.Errorf("%w: it keeps no journal and has no fence", ErrUnsupported)
	}
	return store, nil
}
