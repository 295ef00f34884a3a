package lease

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

const (
	// scanInterval is the minimum time between two scans of all leases. A lease may end later by that much.
	scanInterval = 100 * time.Millisecond
	// maxConcurrentEnds bounds the leases that a keeper ends concurrently.
	maxConcurrentEnds = 8
)

// expirer ends the leases that have expired.
type expirer struct {
	*leaseStore
	*leaseStates
	watchEndCh chan struct{} // closed when the keeper's watch has ended for good
}

// expire ends leases until ctx ends.
func (e *expirer) expire(ctx context.Context) {
	var ending sync.WaitGroup
	defer ending.Wait()
	slots := make(chan struct{}, maxConcurrentEnds)
	for ctx.Err() == nil {
		all, next, changed := e.due(time.Now())
		for _, d := range all {
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return
			}
			ending.Go(func() {
				defer func() { <-slots }()
				err := e.endExpired(ctx, d)
				if errors.Is(err, storage.ErrCASFailure) && e.noteRefusal(d) {
					err = cmp.Or(e.refresh(ctx, d), err)
				}
				if err != nil && !errors.Is(err, storage.ErrCASFailure) {
					wait(ctx, retryPause)
				}
				e.retryEnding(d, err)
			})
		}
		select {
		case <-time.After(next):
		case <-changed:
		case <-ctx.Done():
		}
		wait(ctx, scanInterval)
	}
}

// endExpired ends a lease that is due. It returns storage.ErrCASFailure if the lease was renewed meanwhile.
func (e *expirer) endExpired(ctx context.Context, d expiring) error {
	switch {
	case d.lease == nil:
		return e.sweep(ctx, d.leaseName)
	case d.lease.hasEnded:
		return e.end(ctx, d.lease)
	case e.hasExtension(d.name): // an extension began after the lease became due, while this call waited for a slot
		return storage.ErrCASFailure
	}
	last, err := e.readRecord(ctx, renewalType, d.name)
	switch {
	case errors.Is(err, storage.ErrNotFound):
		last = &resourcepb.Resource{Id: e.id(renewalType, d.name)} // the check below proves that it does not exist
	case err != nil:
		return err
	}
	if last.GetVersion() != d.renewal {
		return storage.ErrCASFailure
	}
	return e.end(ctx, d.lease, storage.Op{Check: last.GetId(), Version: d.renewal})
}

// refresh reads the records of a lease that cannot be ended at the observed versions. Package moved continues a watch in another store, where the
// copied records have other versions, which the watch does not return. The time to live starts again.
func (e *expirer) refresh(ctx context.Context, d expiring) error {
	res, err := e.readRecord(ctx, leaseType, d.name)
	if errors.Is(err, storage.ErrNotFound) {
		return nil // the watch returns the deletion
	} else if err != nil {
		return err
	}
	l, err := leaseOf(res)
	if err != nil {
		return nil // another program has written it, so the watch returns it
	}
	renewal, err := e.readRecord(ctx, renewalType, d.name)
	if err != nil && !errors.Is(err, storage.ErrNotFound) {
		return err
	}
	e.observeRead(d, l, renewal)
	return nil
}

// end ends a lease: it marks the record, so that nothing can be attached or renewed, deletes the attached resources, and then the record. Any
// keeper that finds a marked record continues from there. It returns storage.ErrCASFailure if a proof fails or another writer was faster.
func (e *expirer) end(ctx context.Context, l *Lease, proofs ...storage.Op) error {
	if !l.hasEnded {
		stored, err := e.tx.Commit(ctx, append([]storage.Op{{Write: l.record(true)}}, proofs...))
		if err != nil {
			return err
		}
		l = &Lease{TTL: l.TTL, res: stored[0], hasEnded: true}
	}
	if err := e.awaitWatch(ctx, l); errors.Is(err, storage.ErrNotFound) {
		return nil // another keeper has completed the end
	} else if err != nil {
		return err
	}
	if err := e.deleteAttached(ctx, l.res.GetId()); err != nil {
		return err
	}
	return e.deleteRecords(ctx, l)
}

// deleteAttached deletes the resources of a lease that accepts no new attachments.
func (e *expirer) deleteAttached(ctx context.Context, lease *resourcepb.ID) error {
	for {
		remaining, err := e.backend.OwnerReferences(ctx, lease)
		if err != nil || len(remaining) == 0 {
			return err
		}
		deleted := false
		for _, id := range remaining {
			did, err := e.detach(ctx, id, lease)
			if err != nil {
				return err
			}
			deleted = deleted || did
		}
		if !deleted {
			wait(ctx, scanInterval) // OwnerReferences may lag behind the deletions
		}
	}
}

// awaitWatch blocks until the keeper's watch has returned the record that marks a lease as ended. A reader that has observed this record finds
// all attached resources, because nothing can be attached after it. It returns storage.ErrNotFound if the record was deleted.
func (e *expirer) awaitWatch(ctx context.Context, l *Lease) error {
	for {
		seen, changed := e.hasSeen(l.res.GetId().GetName(), l.res.GetVersion())
		if seen {
			return nil
		}
		stored, err := e.backend.Read(ctx, storage.StrongConsistency, l.res.GetId())
		switch {
		case err != nil:
			return err
		case stored.GetVersion() != l.res.GetVersion(): // rewritten by another program: the watch may have skipped this version
			return storage.ErrCASFailure
		}
		select {
		case <-changed:
		case <-e.watchEndCh:
			return storage.ErrClosed
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// detach deletes a resource if it is still attached to a lease, and reports whether it did.
func (e *expirer) detach(ctx context.Context, id, lease *resourcepb.ID) (bool, error) {
	for {
		res, err := e.backend.Read(ctx, storage.StrongConsistency, id)
		damaged, mismatch := (*storage.DamagedError)(nil), storage.GroupVersionMismatchError{}
		switch {
		case errors.As(err, &mismatch):
			res, err = mismatch.Stored, nil
		case errors.As(err, &damaged) && damaged.Version != "":
			res, err = &resourcepb.Resource{Id: damaged.ID, Version: damaged.Version, Owner: lease}, nil
		}
		switch {
		case errors.Is(err, storage.ErrNotFound):
			return false, nil
		case err != nil:
			return false, err
		case !hasOwner(res, lease):
			return false, nil
		}
		err = e.backend.DeleteCAS(ctx, res.GetId(), res.GetVersion())
		if !errors.Is(err, storage.ErrCASFailure) {
			return err == nil, err
		}
	}
}

// hasOwner reports whether a resource is attached to a lease.
func hasOwner(res *resourcepb.Resource, lease *resourcepb.ID) bool {
	return res.GetOwner().GetUid() == lease.GetUid() && res.GetOwner().GetName() == lease.GetName()
}

// deleteRecords deletes the record of a lease and its renewal.
func (e *expirer) deleteRecords(ctx context.Context, l *Lease) error {
	ops := []storage.Op{{Delete: l.res.GetId(), Version: l.res.GetVersion()}}
	last, err := e.readRecord(ctx, renewalType, l.res.GetId().GetName())
	switch {
	case err == nil:
		ops = append(ops, storage.Op{Delete: last.GetId(), Version: last.GetVersion()})
	case !errors.Is(err, storage.ErrNotFound):
		return err
	}
	// If the record still exists after the renewal was read, the renewal belongs to this lease. Otherwise another keeper has deleted the records,
	// and the renewal may belong to a new lease of this name.
	switch _, err = e.backend.Read(ctx, storage.StrongConsistency, l.res.GetId()); {
	case errors.Is(err, storage.ErrNotFound):
		return nil
	case err != nil:
		return err
	}
	_, err = e.tx.Commit(ctx, ops)
	return err
}

// sweep deletes the resources attached to a lease without a record, and its renewal. Nothing can be attached to it any more, and the keeper's
// watch is past the record's deletion, so all attached resources are found.
func (e *expirer) sweep(ctx context.Context, l leaseName) error {
	stored, err := e.readRecord(ctx, leaseType, l.name)
	switch {
	case err == nil && stored.GetId().GetUid() == l.uid:
		return nil // the watch is behind
	case err != nil && !errors.Is(err, storage.ErrNotFound):
		return err
	}
	lease := e.id(leaseType, l.name)
	if lease.Uid = l.uid; l.uid != "" {
		if err := e.deleteAttached(ctx, lease); err != nil {
			return err
		}
	}
	last, err := e.readRecord(ctx, renewalType, l.name)
	switch {
	case errors.Is(err, storage.ErrNotFound):
		return nil
	case err != nil:
		return err
	case renewedUid(last) != l.uid:
		return nil // it belongs to another lease
	}
	_, err = e.tx.Commit(ctx, []storage.Op{{Check: e.id(leaseType, l.name)}, {Delete: last.GetId(), Version: last.GetVersion()}})
	return err
}
