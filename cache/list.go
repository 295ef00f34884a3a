package cache

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/check"
	"github.com/ashlar-dev/storage/internal/replica"
	"github.com/ashlar-dev/storage/resourcepb"
)

// List implements storage.Backend.
func (c *Cache) List(ctx context.Context, consistency storage.ReadConsistency, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, namePrefix string) ([]*resourcepb.Resource, error) {
	f, err := check.Filter(typ, tenancy, namePrefix)
	if err := c.begin(ctx, check.Consistency(consistency), err); err != nil {
		return nil, err
	}
	if c.covers(f) {
		cut, err := c.cut(ctx, consistency, func(k key.Key) bool { return f.Match(&k) })
		if err != nil {
			return nil, fmt.Errorf("list: %w", err)
		}
		if cut != nil {
			return decodeRows(cut, f)
		}
	}
	number := c.unconfirmedKeys.latest()
	all, err := c.backend.List(ctx, consistency, typ, tenancy, namePrefix)
	if err == nil {
		c.noteListing(typ, all, number)
	}
	return all, err
}

// cut returns a consistent state of the store for a list of the keys that match. It returns nil if the caller must read the database.
func (c *Cache) cut(ctx context.Context, consistency storage.ReadConsistency, match func(key.Key) bool) (*replica.View[storedResource], error) {
	ok, err := c.fromCopy(ctx, consistency, func() bool { return c.unconfirmedKeys.hasMatch(match, c.copyVersion) })
	if !ok || err != nil {
		return nil, err
	}
	if consistency == storage.EventualConsistency {
		await := func(ctx context.Context) error { return c.copy.AwaitLocalWrites(ctx, match) }
		if !c.copy.Live() {
			return nil, nil
		}
		if err := c.waitForCopy(ctx, await); err != nil {
			return nil, err
		}
	}
	return c.copy.Cut(), nil
}

func decodeRows(cut *replica.View[storedResource], f key.Filter) (all []*resourcepb.Resource, err error) {
	for row := range cut.Select(f) {
		res, err := decodeRow(row)
		if err != nil {
			return nil, fmt.Errorf("list: %w", err)
		}
		all = append(all, res)
	}
	return all, nil
}

// OwnerReferences implements storage.Backend.
func (c *Cache) OwnerReferences(ctx context.Context, id *resourcepb.ID) ([]*resourcepb.ID, error) {
	_, err := check.IDWithUid("id", id)
	if err := c.begin(ctx, err); err != nil {
		return nil, err
	}
	if len(c.types) > 0 { // resources of other types may have the same owner
		return c.backendReferences(ctx, id)
	}
	cut, err := c.cut(ctx, storage.EventualConsistency, func(key.Key) bool { return true })
	switch {
	case err != nil:
		return nil, fmt.Errorf("list the references to %v: %w", key.Of(id), err)
	case cut == nil:
		return c.backendReferences(ctx, id)
	}
	var all []*resourcepb.ID
	at := ownerIndexKey(id)
	for row := range cut.Between(at, at+"\x00") {
		res, err := decodeRow(row)
		if err != nil {
			return nil, fmt.Errorf("list the references to %v: %w", key.Of(id), err)
		}
		all = append(all, res.GetId())
	}
	slices.SortFunc(all, func(a, b *resourcepb.ID) int {
		return strings.Compare(string(key.Of(a).Bytes()), string(key.Of(b).Bytes()))
	})
	return all, nil
}

// backendReferences returns the backend's references to an owner. They have no versions to compare with the copy, so every key becomes
// unconfirmed.
func (c *Cache) backendReferences(ctx context.Context, id *resourcepb.ID) ([]*resourcepb.ID, error) {
	all, err := c.backend.OwnerReferences(ctx, id)
	if err == nil {
		c.unconfirmedKeys.addAll()
	}
	return all, err
}
