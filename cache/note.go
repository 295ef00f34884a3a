package cache

import (
	"context"
	"errors"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// copyVersion returns the version of a key in the copy, "" for none.
func (c *Cache) copyVersion(k key.Key) string {
	if row := c.copy.Get(k); row != nil {
		return row.Version
	}
	return ""
}

// noteEvent records that a watch of the program returned a version of a key, or its deletion.
func (c *Cache) noteEvent(k key.Key, version string, deleted bool) {
	if !c.holds(k) {
		return
	}
	current := c.copyVersion(k)
	c.unconfirmedKeys.removeIfAt(k, current)
	switch {
	case deleted:
		// The copy's state may be from before or after the deletion, even if it has no row.
		c.unconfirmedKeys.add(k, "")
	case current != version:
		c.unconfirmedKeys.add(k, version)
	}
}

// noteAnswer records that the backend returned a version of a key, "" for none, for a call that began after the mark of the given number. Such
// an answer is not older than the marked state.
func (c *Cache) noteAnswer(k key.Key, version string, number int64) {
	if c.holds(k) {
		c.unconfirmedKeys.noteAnswer(k, version, number, c.copyVersion)
	}
}

// noteRefusal records that the backend refused a write, a deletion or a check of an id at a version. If the copy's state does not explain the
// error, the copy is behind.
func (c *Cache) noteRefusal(id *resourcepb.ID, version string, err error) {
	k := key.Of(id)
	if !c.holds(k) {
		return
	}
	row := c.copy.Get(k)
	switch {
	case errors.Is(err, storage.ErrCASFailure) && (row == nil && version == "" || row != nil && row.Version == version),
		errors.Is(err, storage.ErrWrongUid) && (row == nil || uid(row) == id.GetUid()):
		c.unconfirmedKeys.add(k, "")
	}
}

// noteCheck records that an id was stored at a version, or absent if the version is "".
func (c *Cache) noteCheck(id *resourcepb.ID, version string) {
	if k := key.Of(id); c.holds(k) && c.copyVersion(k) != version {
		c.unconfirmedKeys.add(k, version)
	}
}

// noteListing records that the backend returned some or all resources of a type. A resource that it did not return may still be in the
// copy, or may reach the copy later, so every key is marked. listed contains the resources that the call returned, and number is the
// number of the newest mark when the call began. listed is empty for a listing of an earlier state.
func (c *Cache) noteListing(typ storage.UnversionedType, listed []*resourcepb.Resource, number int64) {
	if !c.overlaps(typ) {
		return
	}
	var confirmed []key.Key
	if !c.copy.Bookmarks() { // otherwise one barrier confirms every key
		for _, res := range listed {
			if k := key.Of(res.GetId()); c.copyVersion(k) == res.GetVersion() {
				confirmed = append(confirmed, k)
			}
		}
	}
	c.unconfirmedKeys.addAllExcept(confirmed, number)
}

// proveProgress waits until the copy has everything that was acknowledged before the call, and removes the marks from before it.
func (c *Cache) proveProgress(ctx context.Context) error {
	number := c.unconfirmedKeys.latest()
	if err := c.waitForCopy(ctx, c.copy.Barrier); err != nil {
		return err
	}
	if number > 0 {
		c.unconfirmedKeys.removeUpTo(number)
	}
	return nil
}
