package inmem

import (
	"context"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Apply implements driver.Driver.
func (s *store) Apply(ctx context.Context, mutations []driver.Mutation) error {
	// Clone the resources before taking the lock.
	var room [1]*resourcepb.Resource
	copies := room[:]
	if len(mutations) > len(room) {
		copies = make([]*resourcepb.Resource, len(mutations))
	}
	for i := range mutations {
		if mutations[i].Verb == driver.Write {
			copies[i] = codec.Clone(mutations[i].Resource)
		}
	}
	if err := s.lockForWriting(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	refusal := s.writeError(driver.GuardOf(ctx))
	if refusal != nil && mutations[0].Verb != driver.Delete {
		return refusal
	}
	changes, err := s.decide(mutations)
	if err == nil && changes {
		err = refusal
	}
	if err != nil || !changes {
		return err
	}
	if len(mutations) > 1 {
		s.commitNumber = int64(s.at) + 1
		defer func() { s.commitNumber = 0 }()
	}
	for i := range mutations {
		switch m := &mutations[i]; m.Verb {
		case driver.Write:
			m.NewVersion = s.put(m.Key, copies[i], codec.Size(copies[i])).resource.Version
			m.Revision = int64(s.at)
		case driver.Delete:
			if it := s.items[m.Key]; it != nil && it.decisionState().Uid == m.Uid { // otherwise there is nothing to delete
				s.remove(it)
				m.Revision = int64(s.at)
			}
		}
	}
	s.announce()
	return nil
}

// decide reports whether the mutations change anything, or returns the first refusal. The caller holds the lock.
func (s *store) decide(mutations []driver.Mutation) (changes bool, err error) {
	for i := range mutations {
		does, err := mutations[i].Decide(s.items[mutations[i].Key].decisionState())
		if err != nil {
			return false, &storage.OpError{Index: i, Err: err}
		}
		changes = changes || does
	}
	return changes, nil
}
