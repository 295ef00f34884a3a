package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service/client"
)

// deleter deletes a resource and, in a cascade, everything it owns directly or indirectly. Other clients may write meanwhile. A deletion
// therefore succeeds only if the resource and the owners between it and the first resource are unchanged: a resource that moved to another
// owner is not deleted, and neither is anything it owns.
type deleter struct {
	backend  storage.Backend
	out      io.Writer
	cascade  bool
	guard    *resourcepb.Resource   // must not have changed, unless nil
	visiting map[key.Key]bool       // keys being deleted: owners may own each other in a circle
	owners   []*resourcepb.Resource // on which a deletion depends, the nearest last
}

// ownerChangedError reports that the resource with this key now belongs to another owner.
type ownerChangedError struct{ key.Key }

func (m ownerChangedError) Error() string { return fmt.Sprintf("%v has another owner now", m.Key) }

// delete deletes a resource that was read and, in a cascade, everything it owns. The first resource is deleted whatever its owner.
func (d *deleter) delete(ctx context.Context, res *resourcepb.Resource) error {
	return d.deleteFrom(ctx, res, nil)
}

// deleteFrom deletes a resource while it belongs to owner, unless owner is nil.
func (d *deleter) deleteFrom(ctx context.Context, res *resourcepb.Resource, owner *resourcepb.ID) error {
	id := res.GetId()
	d.visiting[key.Of(id)] = true
	if d.cascade {
		depends := owner != nil || d.isGuard(res)
		if depends {
			d.owners = append(d.owners, res)
		}
		_, err := d.deleteOwned(ctx, id)
		if depends {
			last := len(d.owners) - 1
			res, d.owners = d.owners[last], d.owners[:last] // the latest version read
		}
		if err != nil {
			delete(d.visiting, key.Of(id)) // the cascade may reach it again through another owner
			return err
		}
	}
	if res != nil { // not deleted by another client
		if err := d.deleteOne(ctx, res, owner); err != nil {
			delete(d.visiting, key.Of(id))
			return fmt.Errorf("delete %s: %w", cli.FullName(id), err)
		}
	}
	delete(d.visiting, key.Of(id)) // a new resource under its key may be owned as well
	for d.cascade {
		// Resources that got this owner meanwhile are still found, by the uid of the owner.
		if found, err := d.deleteOwned(ctx, id); err != nil || !found {
			return err
		}
	}
	return nil
}

// deleteOwned deletes the resources that id owns, and reports whether there were any.
func (d *deleter) deleteOwned(ctx context.Context, id *resourcepb.ID) (bool, error) {
	children, err := d.backend.OwnerReferences(ctx, id)
	if err != nil {
		return false, fmt.Errorf("list the resources owned by %s: %w", cli.FullName(id), err)
	}
	found := false
	for _, child := range children {
		if d.visiting[key.Of(child)] {
			continue
		}
		res, err := read(ctx, d.backend, child)
		if errors.Is(err, storage.ErrNotFound) || err == nil && !sameResource(res.GetOwner(), id) {
			continue // owner references may lag
		}
		if err != nil {
			return found, fmt.Errorf("get %s: %w", cli.FullName(child), err)
		}
		if markedForDeletion(d.backend, res) {
			continue // the service deletes it when its finalizers are gone
		}
		err = d.deleteFrom(ctx, res, id)
		var changed ownerChangedError
		if errors.As(err, &changed) && changed.Key == key.Of(child) {
			continue
		}
		if err != nil {
			return found, err
		}
		found = true
	}
	return found, nil
}

// deleteOne deletes one resource. It retries after changes by other clients, unless the owner changed.
func (d *deleter) deleteOne(ctx context.Context, res *resourcepb.Resource, owner *resourcepb.ID) error {
	for {
		err := d.tryDelete(ctx, res)
		if err == nil {
			return d.printOutcome(ctx, res.GetId())
		}
		if errors.Is(err, errRetry) {
			continue
		}
		if !errors.Is(err, storage.ErrCASFailure) || errors.Is(err, errGuarded) || d.isGuard(res) {
			return err
		}
		next, err := read(ctx, d.backend, res.GetId())
		if errors.Is(err, storage.ErrNotFound) {
			return nil // another client deleted it
		}
		if err != nil {
			return err
		}
		if owner != nil && !sameResource(next.GetOwner(), owner) {
			return ownerChangedError{key.Of(next.GetId())}
		}
		res = next
	}
}

// printOutcome prints the result of a deletion. A server only marks resources that have finalizers.
func (d *deleter) printOutcome(ctx context.Context, id *resourcepb.ID) error {
	outcome := "deleted"
	if server, ok := d.backend.(*client.Backend); ok {
		deleted, err := server.IsDeleted(ctx, id)
		if err != nil {
			return err
		}
		if !deleted {
			outcome = "marked for deletion, waits for its finalizers"
		}
	}
	_, err := fmt.Fprintf(d.out, "%s %s\n", cli.Describe(id), outcome)
	return err
}

// errGuarded reports that the guarded resource has changed.
var errGuarded = fmt.Errorf("its owner has changed: %w", storage.ErrCASFailure)

// errRetry reports that an owner has changed but is still an owner.
var errRetry = errors.New("an owner has changed")

// tryDelete deletes a resource if it and its owners are unchanged.
func (d *deleter) tryDelete(ctx context.Context, res *resourcepb.Resource) error {
	transactor, ok := storage.As[storage.Transactor](d.backend)
	if !ok || len(d.owners) == 0 {
		return d.backend.DeleteCAS(ctx, res.GetId(), res.GetVersion())
	}
	ops := []storage.Op{{Delete: res.GetId(), Version: res.GetVersion()}}
	first := max(0, len(d.owners)-transactor.MaxOps()+1) // one transaction can check only so many
	for _, owner := range d.owners[first:] {
		if owner != nil {
			ops = append(ops, storage.Op{Check: owner.GetId(), Version: owner.GetVersion()})
		}
	}
	_, err := transactor.Commit(ctx, ops)
	var failed *storage.OpError
	switch {
	case !errors.As(err, &failed):
		return err
	case failed.Index == 0:
		return failed.Err
	case !errors.Is(err, storage.ErrCASFailure) && !errors.Is(err, storage.ErrWrongUid):
		return err
	}
	return d.rereadOwner(ctx, ops[failed.Index].Check)
}

// rereadOwner reads a changed owner again. It returns errRetry if the owner's own owner is unchanged, or if the owner was deleted, because
// the cascade would delete it anyway.
func (d *deleter) rereadOwner(ctx context.Context, id *resourcepb.ID) error {
	for i, owner := range d.owners {
		if owner == nil || !sameResource(owner.GetId(), id) {
			continue
		}
		if d.isGuard(owner) {
			return errGuarded
		}
		now, err := read(ctx, d.backend, id)
		switch {
		case errors.Is(err, storage.ErrNotFound):
			d.owners[i] = nil
		case err != nil:
			return err
		case !sameResource(now.GetOwner(), owner.GetOwner()):
			return ownerChangedError{key.Of(id)}
		default:
			d.owners[i] = now
		}
	}
	return errRetry
}

// isGuard reports whether res is the version that must not change.
func (d *deleter) isGuard(res *resourcepb.Resource) bool {
	return sameResource(res.GetId(), d.guard.GetId()) && res.GetVersion() == d.guard.GetVersion()
}

// sameResource reports whether two ids name one resource.
func sameResource(a, b *resourcepb.ID) bool {
	return a != nil && b != nil && key.Of(a) == key.Of(b) && a.GetUid() == b.GetUid()
}
