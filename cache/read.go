package cache

import (
	"context"
	"errors"
	"fmt"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/check"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Read implements storage.Backend.
func (c *Cache) Read(ctx context.Context, consistency storage.ReadConsistency, id *resourcepb.ID) (*resourcepb.Resource, error) {
	k, err := check.ID("id", id)
	if err := c.begin(ctx, check.Consistency(consistency), err); err != nil {
		return nil, err
	}
	if !c.holds(k) {
		return c.backend.Read(ctx, consistency, id)
	}
	ok, err := c.fromCopy(ctx, consistency, func() bool { return c.unconfirmedKeys.has(k, c.copyVersion) })
	switch {
	case err != nil:
		return nil, fmt.Errorf("read %v: %w", k, err)
	case !ok:
		return c.backendRead(ctx, consistency, k, id)
	}
	row := c.copy.Get(k)
	if row == nil {
		return nil, fmt.Errorf("read %v: %w", k, storage.ErrNotFound)
	}
	res, err := decodeRow(row)
	switch {
	case err != nil:
		return nil, fmt.Errorf("read %v: %w", k, err)
	case id.GetUid() != "" && id.GetUid() != res.GetId().GetUid():
		return nil, fmt.Errorf("read %v: %w: the stored resource has another uid", k, storage.ErrNotFound)
	case id.GetType().GetGroupVersion() != res.GetId().GetType().GetGroupVersion():
		return nil, storage.GroupVersionMismatchError{RequestedType: codec.CloneID(id).GetType(), Stored: res}
	}
	return res, nil
}

// fromCopy reports whether the copy can answer a call; the backend answers otherwise. For a strong read, and for an eventual read of unconfirmed
// keys, it first waits for a barrier.
func (c *Cache) fromCopy(ctx context.Context, consistency storage.ReadConsistency, isUnconfirmed func() bool) (bool, error) {
	if consistency == storage.EventualConsistency && (!c.unconfirmedKeys.hasAny.Load() || !isUnconfirmed()) {
		return true, nil
	}
	if !c.copy.Bookmarks() || !c.copy.Live() {
		return false, nil
	}
	err := c.proveProgress(ctx)
	if errors.Is(err, storage.ErrMoved) {
		return false, nil // the backend refuses strong reads, and returns its last state to others
	}
	return true, err
}

// backendRead reads from the backend and records the answer.
func (c *Cache) backendRead(ctx context.Context, consistency storage.ReadConsistency, k key.Key, id *resourcepb.ID) (*resourcepb.Resource, error) {
	number := c.unconfirmedKeys.latest()
	res, err := c.backend.Read(ctx, consistency, id)
	var mismatch storage.GroupVersionMismatchError
	switch {
	case err == nil:
		c.noteAnswer(k, res.GetVersion(), number)
	case errors.As(err, &mismatch):
		c.noteAnswer(k, mismatch.Stored.GetVersion(), number)
	case errors.Is(err, storage.ErrNotFound):
		c.noteAnswer(k, "", number)
	}
	return res, err
}
