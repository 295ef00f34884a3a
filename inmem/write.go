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
	if err == nil && changes > 0 {
		err = refusal
	}
	if err != nil || changes == 0 {
		return err
	}
	s.commitEnd = s.at + position(changes)
	for i := range mutations {
		switch m := &mutations[i]; m.Verb {
		case driver.Write:
			m.NewVersion = s.put(m.Key, copies[i], codec.Size(copies[i])).resource.Version
			m.Revision = int64(s.commitEnd)
		case driver.Delete:
			if it := s.items[m.Key]; it != nil && it.decisionState().Uid == m.Uid { // otherwise there is nothing to delete
				s.remove(it)
				m.Revision = int64(s.commitEnd)
			}
		}
	}
	s.announce()
	return nil
}

// decide returns the number of mutations that change something, or the first refusal. The caller holds the lock.
func (s *store) decide(mutations []driver.Mutation) (changes int, err error) {
	for i := range mutations {
		does, err := mutations[i].Decide(s.items[mutations[i].Key].decisionState())
		if err != nil {
			return 0, &storage.OpError{Index: i, Err: err}
		}
		if does {
			changes++
		}
	}
	return changes, nil
}
