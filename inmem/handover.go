package inmem

import (
	"bytes"
	"context"
	"strconv"

	"github.com/ashlar-dev/storage/internal/handover"
)

var _ handover.Store = (*Backend)(nil)

// note is an entry of the journal.
type note struct {
	value    []byte
	revision string
}

// refused returns the error of a write where the store is fenced. The caller holds the lock.
func (s *store) refused() error {
	if s.fence == nil {
		return nil
	}
	return handover.Refused(*s.fence)
}

// Fence closes the store for writing, for the tool that moves its data to another one. Writers look at it under the lock that
// they take anyway.
func (b *Backend) Fence(ctx context.Context, target string) error { return b.setFence(ctx, &target) }

// Unfence opens the store again.
func (b *Backend) Unfence(ctx context.Context) error { return b.setFence(ctx, nil) }

func (b *Backend) setFence(ctx context.Context, target *string) error {
	if err := b.begin(ctx); err != nil {
		return err
	}
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	b.store.fence = target
	return nil
}

// Fenced tells whether the store is closed for writing, and where its data went.
func (b *Backend) Fenced(ctx context.Context) (target string, fenced bool, err error) {
	if err := b.begin(ctx); err != nil {
		return "", false, err
	}
	b.store.mu.RLock()
	defer b.store.mu.RUnlock()
	if b.store.fence == nil {
		return "", false, nil
	}
	return *b.store.fence, true, nil
}

// ReadJournal returns a note of the tool that moves data, and its revision.
func (b *Backend) ReadJournal(ctx context.Context, name string) (value []byte, revision string, err error) {
	if err := b.begin(ctx); err != nil {
		return nil, "", err
	}
	b.store.mu.RLock()
	defer b.store.mu.RUnlock()
	n := b.store.notes[name]
	return bytes.Clone(n.value), n.revision, nil
}

// WriteJournal writes a note if it has that revision.
func (b *Backend) WriteJournal(ctx context.Context, name string, value []byte, revision string) (string, error) {
	if err := b.begin(ctx); err != nil {
		return "", err
	}
	s := b.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.notes[name].revision != revision {
		return "", handover.Conflict(name)
	}
	if s.notes == nil {
		s.notes = make(map[string]note)
	}
	s.noted++
	s.notes[name] = note{bytes.Clone(value), strconv.FormatUint(s.noted, 10)}
	return s.notes[name].revision, nil
}

// DeleteJournal removes a note if it has that revision.
func (b *Backend) DeleteJournal(ctx context.Context, name, revision string) error {
	if err := b.begin(ctx); err != nil {
		return err
	}
	s := b.store
	s.mu.Lock()
	defer s.mu.Unlock()
	n, there := s.notes[name]
	if there && n.revision != revision {
		return handover.Conflict(name)
	}
	delete(s.notes, name)
	return nil
}
