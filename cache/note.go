package cache

import (
	"context"
	"errors"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// copyVersion returns the version of a key in the copy, "" for nothing.
func (c *Cache) copyVersion(k key.Key) string {
	if row := c.copy.Get(k); row != nil {
		return row.Version
	}
	return ""
}

// noteEvent notes that a watch shows a change of a key: a version or, if deleted, the end of one.
func (c *Cache) noteEvent(k key.Key, version string, deleted bool) {
	if !c.holds(k) {
		return
	}
	shown := c.copyVersion(k)
	c.unconfirmedKeys.removeIfShown(k, shown)
	switch {
	case deleted:
		// What the copy shows is from before, or from after; if it is nothing too.
		c.unconfirmedKeys.add(k, "")
	case shown != version:
		c.unconfirmedKeys.add(k, version)
	}
}

// noteAnswer notes that the backend shows a version of a key, "" for nothing, in an noteAnswer to a call that began after the doubt of a number:
// an noteAnswer is not older than what was shown before.
func (c *Cache) noteAnswer(k key.Key, version string, number int64) {
	if c.holds(k) {
		c.unconfirmedKeys.noteAnswer(k, version, number, c.copyVersion)
	}
}

// noteRefusal notes that a write, a deletion or a check of an id at a version has failed. Where the copy shows what would have let it succeed,
// or would have had it fail otherwise, it is behind.
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

// noteCheck notes that an id was found stored at a version, or absent if that is "".
func (c *Cache) noteCheck(id *resourcepb.ID, version string) {
	if k := key.Of(id); c.holds(k) && c.copyVersion(k) != version {
		c.unconfirmedKeys.add(k, version)
	}
}

// noteListing notes that the backend has shown some or all of the resources of a type. What it has not shown the copy may still show, or may
// have yet to come by.
func (c *Cache) noteListing(typ storage.UnversionedType, shown []*resourcepb.Resource) {
	if !c.overlaps(typ) {
		return
	}
	number := c.unconfirmedKeys.addAll()
	if c.copy.Bookmarks() {
		return // one proof settles it
	}
	for _, res := range shown {
		if k := key.Of(res.GetId()); c.copyVersion(k) == res.GetVersion() {
			c.unconfirmedKeys.exempt(k, number)
		}
	}
}

// proveProgress has the copy prove how far it is.
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
