package sqlite

import (
	"context"

	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/codec"
)

// mutation is a driver's Mutation, ready for the writer, which may still have it when the caller has left: the writer does not look at the
// caller's message.
type mutation struct {
	*driver.Mutation
	key []byte
	// The rest belongs to a write.
	groupVersion string
	owner, data  []byte
	created      int64 // set by the writer, as the rest
	writes       int64
	at           mark // of the row that tells of the change; none: nothing was changed
}

func newMutation(m *driver.Mutation) (c mutation, err error) {
	c = mutation{Mutation: m, key: m.Key.Bytes()}
	if m.Verb == driver.Write {
		c.groupVersion = m.Resource.GetId().GetType().GetGroupVersion()
		c.owner = ownerBytes(m.Resource.GetOwner())
		c.data, err = codec.Encode(m.Resource)
	}
	return c, err
}

// Apply implements driver.Driver: the writer carries the mutations out.
func (s *handle) Apply(ctx context.Context, mutations []driver.Mutation) (err error) {
	r := &request{mutations: make([]mutation, len(mutations)), guard: driver.GuardOf(ctx)}
	for i := range mutations {
		if r.mutations[i], err = newMutation(&mutations[i]); err != nil {
			return err
		}
	}
	if err := s.writer.do(ctx, r); err != nil {
		return err
	}
	for i := range mutations {
		m, c := &mutations[i], &r.mutations[i]
		if m.Verb == driver.Write {
			m.NewVersion = c.at.version()
		}
		if c.at.seq != 0 {
			m.Revision = c.at.revision()
		}
	}
	return nil
}
