package inmem

import (
	"bytes"
	"context"
	"strconv"

	"github.com/ashlar-dev/storage/internal/handover"
)

var (
	_ handover.Store       = (*Backend)(nil)
	_ handover.EpochFencer = (*Backend)(nil)
	_ handover.Guarder     = (*Backend)(nil)
)

// note is an entry of the journal.
type note struct {
	value    []byte
	revision string
}

// refused returns the error of a change where the store is fenced, or where the change's guard does not hold. The caller holds
// the lock.
func (s *store) refused(g *handover.Guard) error {
	switch {
	case s.fence != nil:
		return handover.Refused(*s.fence)
	case g != nil && s.notes[g.Note].revision != g.Revision:
		return g.Superseded()
	}
	return nil
}

// WithGuard makes the changes of a context depend on a note, for the tool that moves data to this store.
func (b *Backend) WithGuard(ctx context.Context, note, revision string) context.Context {
	return handover.Guarded(ctx, note, revision)
}

// Fence closes the store for writing, for the tool that moves its data to another one. Writers look at it under the lock that
// they take anyway.
func (b *Backend) Fence(ctx context.Context, target string) error {
	_, err := b.setFence(ctx, &target, nil)
	return err
}

// Unfence opens the store again.
func (b *Backend) Unfence(ctx context.Context) error {
	_, err := b.setFence(ctx, nil, nil)
	return err
}

// FenceAt is Fence if the fence has that epoch.
func (b *Backend) FenceAt(ctx context.Context, target, epoch string) (string, error) {
	return b.setFence(ctx, &target, &epoch)
}

// UnfenceAt is Unfence if the fence has that epoch.
func (b *Backend) UnfenceAt(ctx context.Context, epoch string) (string, error) {
	return b.setFence(ctx, nil, &epoch)
}

func (b *Backend) setFence(ctx context.Context, target, epoch *string) (next string, err error) {
	if err := b.begin(ctx); err != nil {
		return "", err
	}
	s := b.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if epoch != nil && *epoch != s.notes[handover.FenceNote].revision {
		return "", handover.Conflict(handover.FenceNote)
	}
	s.fence = target
	return s.note(handover.FenceNote, nil), nil
}

// Fenced tells whether the store is closed for writing, and where its data went.
func (b *Backend) Fenced(ctx context.Context) (target string, fenced bool, err error) {
	state, err := b.FenceState(ctx)
	return state.Target, state.Closed, err
}

// FenceState is Fenced, with the fence's epoch.
func (b *Backend) FenceState(ctx context.Context) (handover.FenceState, error) {
	if err := b.begin(ctx); err != nil {
		return handover.FenceState{}, err
	}
	s := b.store
	s.mu.RLock()
	defer s.mu.RUnlock()
	state := handover.FenceState{Closed: s.fence != nil, Epoch: s.notes[handover.FenceNote].revision}
	if s.fence != nil {
		state.Target = *s.fence
	}
	return state, nil
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
	return s.note(name, value), nil
}

// note writes a note and returns its revision. The caller holds the lock.
func (s *store) note(name string, value []byte) (revision string) {
	if s.notes == nil {
		s.notes = make(map[string]note)
	}
	s.noted++
	revision = strconv.FormatUint(s.noted, 10)
	s.notes[name] = note{bytes.Clone(value), revision}
	return revision
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
