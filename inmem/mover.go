package inmem

import (
	"bytes"
	"context"
	"strconv"

	"github.com/ashlar-dev/storage/driver"
)

// writeError returns the error of a write to a fenced store, or of a write whose guard no longer holds. The caller
// holds the lock.
func (s *store) writeError(g *driver.Guard) error {
	if s.fence != nil {
		if err := s.fence.Refusal(g); err != nil {
			return err
		}
	}
	if g != nil && s.notes[g.Note].revision != g.Revision {
		return g.Superseded()
	}
	return nil
}

// SetFence implements driver.Mover. Writers check the fence under the store's lock.
func (s *store) SetFence(_ context.Context, target *string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if target == nil {
		s.setFence(nil)
	} else {
		s.setFence(&driver.Fence{Target: *target})
	}
	return nil
}

// setFence closes or opens the store and returns the epoch of the fence. The caller holds the lock.
func (s *store) setFence(fence *driver.Fence) (epoch string) {
	s.fence = nil
	if fence != nil {
		s.fence = new(*fence)
	}
	return s.note(driver.FenceNote, nil)
}

// Guards implements driver.GuardedMover.
func (*store) Guards() {}

// SetFenceAt implements driver.GuardedMover.
func (s *store) SetFenceAt(_ context.Context, fence *driver.Fence, epoch string) (next string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if epoch != s.notes[driver.FenceNote].revision {
		return "", driver.Conflict(driver.FenceNote)
	}
	return s.setFence(fence), nil
}

// Fence implements driver.Mover.
func (s *store) Fence(context.Context) (driver.FenceState, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	state := driver.FenceState{Closed: s.fence != nil, Epoch: s.notes[driver.FenceNote].revision}
	if s.fence != nil {
		state.Fence = *s.fence
	}
	return state, nil
}

// ReadNote implements driver.Mover.
func (s *store) ReadNote(_ context.Context, name string) (value []byte, revision string, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	n := s.notes[name]
	return bytes.Clone(n.value), n.revision, nil
}

// WriteNote implements driver.Mover.
func (s *store) WriteNote(_ context.Context, name string, value []byte, revision string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.notes[name].revision != revision {
		return "", driver.Conflict(name)
	}
	return s.note(name, value), nil
}

// note writes a note and returns its revision. The caller holds the lock.
func (s *store) note(name string, value []byte) (revision string) {
	if s.notes == nil {
		s.notes = make(map[string]note)
	}
	s.noteCount++
	revision = strconv.FormatUint(s.noteCount, 10)
	s.notes[name] = note{bytes.Clone(value), revision}
	return revision
}

// DeleteNote implements driver.Mover.
func (s *store) DeleteNote(_ context.Context, name, revision string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, exists := s.notes[name]
	if exists && n.revision != revision {
		return driver.Conflict(name)
	}
	delete(s.notes, name)
	return nil
}
