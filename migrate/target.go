package migrate

import (
	"context"
	"errors"
	"fmt"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/resourcepb"
)

// conflictPolicy says what is to become of a resource in the target that has another uid than the one to be written.
type conflictPolicy func(have *resourcepb.Resource) (verdict, error)

type verdict int

const (
	replace verdict = iota
	leave
)

// outcome says what was done.
type outcome int

const (
	nothing outcome = iota
	outcomeCreated
	outcomeReplaced
	outcomeKept // a rival is there, and stays
)

// maxRaces is how often somebody else may change the same resource of the target before we give up on them.
const maxRaces = 20

// put makes the target hold want, whose version is of no interest. have is what the target is thought to hold, nil for nothing;
// if that is wrong, or an answer is lost, it looks again.
func (m *migration) put(ctx context.Context, want, have *resourcepb.Resource, other conflictPolicy) (did outcome, err error) {
	k := key.Of(want.GetId())
	races := 0
	look := false
	err = m.try.do(ctx, "write to the target", func(ctx context.Context) error {
		for {
			if look {
				if have, err = m.readTarget(ctx, want.GetId()); err != nil {
					return err
				}
			}
			look = true
			if have != nil && have.GetId().GetUid() != want.GetId().GetUid() {
				v, err := other(have)
				if err != nil {
					return err
				}
				if v == leave {
					did = outcomeKept
					return nil
				}
				if err := m.deleteAt(ctx, have); err != nil && !errors.Is(err, storage.ErrCASFailure) {
					return err
				}
				did = outcomeReplaced
				continue
			}
			if have != nil {
				if same, err := equal(want, have); err != nil || same {
					return err
				}
				did = outcomeReplaced
			} else if did == nothing {
				did = outcomeCreated
			}
			err := m.writeAt(ctx, want, have.GetVersion())
			if !errors.Is(err, storage.ErrCASFailure) && !errors.Is(err, storage.ErrWrongUid) {
				return err
			}
			if races++; races > maxRaces {
				return fmt.Errorf("another program keeps changing it: %w", err)
			}
		}
	})
	if err != nil {
		return nothing, fmt.Errorf("target: write %v: %w", k, err)
	}
	return did, nil
}

// drop removes what the target holds under a key if gone says so.
func (m *migration) drop(ctx context.Context, id *resourcepb.ID, have *resourcepb.Resource, gone func(uid string) bool) (did bool, err error) {
	races := 0
	look := have == nil
	err = m.try.do(ctx, "delete from the target", func(ctx context.Context) error {
		for {
			if look {
				if have, err = m.readTarget(ctx, id); err != nil {
					return err
				}
			}
			look = true
			if have == nil || !gone(have.GetId().GetUid()) {
				return nil
			}
			err := m.deleteAt(ctx, have)
			if err == nil {
				did = true
				return nil
			}
			if !errors.Is(err, storage.ErrCASFailure) {
				return err
			}
			if races++; races > maxRaces {
				return fmt.Errorf("another program keeps changing it: %w", err)
			}
		}
	})
	if err != nil {
		return false, fmt.Errorf("target: delete %v: %w", key.Of(id), err)
	}
	return did, nil
}

// writeAt writes to the target, if it is still this process's to write to: after a look at the target, or a pause before another
// attempt, it may be so no more.
func (m *migration) writeAt(ctx context.Context, want *resourcepb.Resource, version string) error {
	ctx, err := m.journal.attemptContext(ctx)
	if err == nil {
		_, err = m.to.WriteCAS(ctx, codec.WithVersion(want, version))
	}
	return err
}

// deleteAt deletes from the target, if it is still this process's to delete from.
func (m *migration) deleteAt(ctx context.Context, have *resourcepb.Resource) error {
	ctx, err := m.journal.attemptContext(ctx)
	if err == nil {
		err = m.to.DeleteCAS(ctx, have.GetId(), have.GetVersion())
	}
	return err
}

// readTarget returns what the target holds under a key, nil for nothing.
func (m *migration) readTarget(ctx context.Context, id *resourcepb.ID) (*resourcepb.Resource, error) {
	return readAny(ctx, m.to, id)
}

// readAny returns what is stored under a key, whatever its uid and group version; nil for nothing.
func readAny(ctx context.Context, b storage.Backend, id *resourcepb.ID) (*resourcepb.Resource, error) {
	anyUid := key.Of(id).ID("", id.GetType().GetGroupVersion())
	res, err := b.Read(ctx, storage.StrongConsistency, anyUid)
	var mismatch storage.GroupVersionMismatchError
	switch {
	case errors.As(err, &mismatch):
		return mismatch.Stored, nil
	case errors.Is(err, storage.ErrNotFound):
		return nil, nil
	}
	return res, err
}
