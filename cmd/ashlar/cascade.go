package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
	"github.com/ashlar-dev/storage/cmd/ashlar/internal/client"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// deleter deletes a resource and, in a cascade, what it owns, and what that owns. Others go on working meanwhile, so each
// deletion holds only if the resource and the owners between it and the first one are as they were read: a resource that has
// come to another owner, with what it owns, is not deleted.
type deleter struct {
	backend  storage.Backend
	out      io.Writer
	cascade  bool
	guard    *resourcepb.Resource   // must not have changed, unless it is nil
	visiting map[key.Key]bool       // those under way: owners may own each other in a circle
	owners   []*resourcepb.Resource // that a deletion depends on, the nearest one last
}

// ownerChangedError says that the resource with this key belongs to another owner now.
type ownerChangedError struct{ key.Key }

func (m ownerChangedError) Error() string { return fmt.Sprintf("%v has another owner now", m.Key) }

// delete deletes a resource that was read, and what it owns if that is wanted. The first one is deleted whoever owns it.
func (d *deleter) delete(ctx context.Context, res *resourcepb.Resource) error {
	return d.deleteFrom(ctx, res, nil)
}

// deleteFrom deletes a resource as long as it belongs to owner, if that is not nil.
func (d *deleter) deleteFrom(ctx context.Context, res *resourcepb.Resource, owner *resourcepb.ID) error {
	id := res.GetId()
	d.visiting[key.Of(id)] = true
	if d.cascade {
		depends := owner != nil || d.isGuarded(res)
		if depends {
			d.owners = append(d.owners, res)
		}
		_, err := d.deleteOwned(ctx, id)
		if depends {
			last := len(d.owners) - 1
			res, d.owners = d.owners[last], d.owners[:last] // as it was read last
		}
		if err != nil {
			delete(d.visiting, key.Of(id)) // it may be met again, under another owner of the cascade
			return err
		}
	}
	if res != nil { // nobody else has deleted it
		if err := d.deleteOne(ctx, res, owner); err != nil {
			delete(d.visiting, key.Of(id))
			return fmt.Errorf("delete %s: %w", cli.FullName(id), err)
		}
	}
	delete(d.visiting, key.Of(id)) // what is born again under its key may be owned, too
	for d.cascade {
		// What came to be owned meanwhile is still found, by the uid of the owner.
		if found, err := d.deleteOwned(ctx, id); err != nil || !found {
			return err
		}
	}
	return nil
}

// deleteOwned deletes what id owns and reports whether there was anything.
func (d *deleter) deleteOwned(ctx context.Context, id *resourcepb.ID) (bool, error) {
	children, err := d.backend.OwnerReferences(ctx, id)
	if err != nil {
		return false, fmt.Errorf("what %s owns: %w", cli.FullName(id), err)
	}
	found := false
	for _, child := range children {
		if d.visiting[key.Of(child)] {
			continue
		}
		res, err := read(ctx, d.backend, child)
		if errors.Is(err, storage.ErrNotFound) || err == nil && !sameResource(res.GetOwner(), id) {
			continue // the references may lag
		}
		if err != nil {
			return found, fmt.Errorf("get %s: %w", cli.FullName(child), err)
		}
		if markedForDeletion(d.backend, res) {
			continue // it goes when its finalizers do
		}
		err = d.deleteFrom(ctx, res, id)
		var away ownerChangedError
		if errors.As(err, &away) && away.Key == key.Of(child) {
			continue
		}
		if err != nil {
			return found, err
		}
		found = true
	}
	return found, nil
}

// deleteOne deletes deleteOne resource, again and again while others change it, but for its owner.
func (d *deleter) deleteOne(ctx context.Context, res *resourcepb.Resource, owner *resourcepb.ID) error {
	for {
		err := d.tryDelete(ctx, res)
		if err == nil {
			return d.printOutcome(ctx, res.GetId())
		}
		if errors.Is(err, errRetry) {
			continue
		}
		if !errors.Is(err, storage.ErrCASFailure) || errors.Is(err, errGuarded) || d.isGuarded(res) {
			return err
		}
		next, err := read(ctx, d.backend, res.GetId())
		if errors.Is(err, storage.ErrNotFound) {
			return nil // somebody else deleted it
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

// printOutcome says what became of a resource that was deleted: a server only marks what has finalizers.
func (d *deleter) printOutcome(ctx context.Context, id *resourcepb.ID) error {
	outcome := "deleted"
	if server, ok := d.backend.(*client.Backend); ok {
		gone, err := server.IsDeleted(ctx, id)
		if err != nil {
			return err
		}
		if !gone {
			outcome = "marked for deletion, waits for its finalizers"
		}
	}
	_, err := fmt.Fprintf(d.out, "%s %s\n", cli.Describe(id), outcome)
	return err
}

// errGuarded says that the resource which must not have changed has.
var errGuarded = fmt.Errorf("what owns it has changed: %w", storage.ErrCASFailure)

// errRetry says that an owner has changed, but is an owner still.
var errRetry = errors.New("an owner has changed")

// tryDelete deletes a resource if it and the owners are as they were read.
func (d *deleter) tryDelete(ctx context.Context, res *resourcepb.Resource) error {
	transactor, ok := storage.As[storage.Transactor](d.backend)
	if !ok || len(d.owners) == 0 {
		return d.backend.DeleteCAS(ctx, res.GetId(), res.GetVersion())
	}
	ops := []storage.Op{{Delete: res.GetId(), Version: res.GetVersion()}}
	first := max(0, len(d.owners)-transactor.MaxOps()+1) // of those that one transaction can look at
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

// rereadOwner finds out what became of an owner: errRetry if it is one still, or was deleted. For the latter is what was wanted.
func (d *deleter) rereadOwner(ctx context.Context, id *resourcepb.ID) error {
	for i, owner := range d.owners {
		if owner == nil || !sameResource(owner.GetId(), id) {
			continue
		}
		if d.isGuarded(owner) {
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

// isGuarded reports whether this is the version that must not have changed.
func (d *deleter) isGuarded(res *resourcepb.Resource) bool {
	return sameResource(res.GetId(), d.guard.GetId()) && res.GetVersion() == d.guard.GetVersion()
}

// sameResource reports whether two ids name one resource.
func sameResource(a, b *resourcepb.ID) bool {
	return a != nil && b != nil && key.Of(a) == key.Of(b) && a.GetUid() == b.GetUid()
}
