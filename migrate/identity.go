package migrate

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/ashlar-dev/storage"
)

// Identity returns the identity of a store, which a storage.MovedError names; "" if it has none.
func Identity(ctx context.Context, b storage.Backend) (string, error) {
	store, err := movable(b)
	if err != nil {
		return "", err
	}
	value, _, err := store.ReadNote(ctx, identityNote)
	return string(value), err
}

// NewIdentity gives a store an identity of its own. A copied file or database has the identity of its original, so migrations take
// both for the same store. A store that is the target of an unfinished migration keeps its identity: ErrBusy.
func NewIdentity(ctx context.Context, b storage.Backend) error {
	store, err := movable(b)
	if err != nil {
		return err
	}
	s, _, err := readState(ctx, store)
	switch {
	case err != nil:
		return err
	case s != nil && s.Phase != Complete && s.Phase != phaseComplete && s.Phase != phaseAborted:
		return fmt.Errorf("%w, from %s: abort it first", ErrBusy, s.From)
	}
	_, revision, err := store.ReadNote(ctx, identityNote)
	if err == nil {
		_, err = store.WriteNote(ctx, identityNote, []byte(rand.Text()), revision)
	}
	return err
}
