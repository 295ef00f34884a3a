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

// conflictPolicy decides about a resource in the target with another uid than the resource to write.
type conflictPolicy func(have *resourcepb.Resource) (verdict, error)

type verdict int

const (
	replace verdict = iota
	leave
)

// maxRaces limits the number of conflicts with other writers of the same resource in the target.
const maxRaces = 20

// put makes the target contain want, whose version is ignored. have is the expected resource in the target, or nil; if that is
// wrong, or an answer is lost, put reads the target. It leaves an equal resource as it is; with renew, one with a time to live gets a new version, as
// want has one in the source: the time starts again.
func (m *migration) put(ctx context.Context, want, have *resourcepb.Resource, other conflictPolicy, renew bool) (did outcome, err error) {
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
				same, err := equal(want, have)
				if err != nil || same && !(renew && want.GetTtl() != nil) {
					return err
				}
				if !same {
					did = outcomeReplaced
				}
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

// drop deletes the target's resource under a key if gone returns true for it.
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

// writeAt writes to the target if this process may still do so, which can change during a read of the target or a pause between
// attempts.
func (m *migration) writeAt(ctx context.Context, want *resourcepb.Resource, version string) error {
	ctx, err := m.journal.attemptContext(ctx)
	if err == nil {
		_, err = m.to.WriteCAS(ctx, codec.WithVersion(want, version))
		m.noteAnswer(err)
	}
	return err
}

// noteAnswer records that a change of the target was not answered.
func (m *migration) noteAnswer(err error) {
	if errors.Is(err, storage.ErrInconsistent) {
		m.unanswered.Store(true)
	}
}

// excludeLateChanges makes the changes that were not answered fail if they have not arrived yet. It is called when no change is in flight, and
// before anything else is applied: a creation that arrives after the source has deleted the resource again would otherwise create it anew.
func (m *migration) excludeLateChanges(ctx context.Context) error {
	if !m.unanswered.Load() {
		return nil
	}
	err := m.journal.takeGuard(ctx)
	if err == nil {
		m.unanswered.Store(false)
	}
	return err
}

// deleteAt deletes from the target if this process may still do so.
func (m *migration) deleteAt(ctx context.Context, have *resourcepb.Resource) error {
	ctx, err := m.journal.attemptContext(ctx)
	if err == nil {
		err = m.to.DeleteCAS(ctx, have.GetId(), have.GetVersion())
		m.noteAnswer(err)
	}
	return err
}

// readTarget returns the target's resource under a key, or nil.
func (m *migration) readTarget(ctx context.Context, id *resourcepb.ID) (*resourcepb.Resource, error) {
	return readAny(ctx, m.to, id)
}
