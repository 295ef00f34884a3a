package cache

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// unconfirmedKeys are the keys of which the copy may be behind what the cache has shown. The zero value is ready to use.
type unconfirmedKeys struct {
	some atomic.Bool // there are any: what most reads look at

	mu   sync.Mutex
	keys map[key.Key]unconfirmedKey
	all  int64            // the number of the newest doubt of every key; 0 for none
	sure map[key.Key]bool // keys that the doubt of every key is not about
	last int64            // the number of the newest doubt
}

// unconfirmedKey is that of a key.
type unconfirmedKey struct {
	number  int64
	version string // what was shown, which ends the doubt once the copy shows the same; "" if only proof ends it
}

// maxUnconfirmed is how many keys are told apart. If there are more, every key is in doubt.
const maxUnconfirmed = 4096

// add puts a key in doubt, of which a version was shown, or, if it is "", something that the copy cannot be held against.
func (d *unconfirmedKeys) add(k key.Key, version string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.put(k, version)
}

// put is add for a caller that holds the lock.
func (d *unconfirmedKeys) put(k key.Key, version string) {
	d.last++
	_, twice := d.keys[k]
	switch {
	case twice:
		d.keys[k] = unconfirmedKey{number: d.last} // nobody knows which of the two is the newer one
	case len(d.keys) >= maxUnconfirmed:
		d.all = d.last
		clear(d.keys)
		clear(d.sure)
	default:
		if d.keys == nil {
			d.keys = map[key.Key]unconfirmedKey{}
		}
		d.keys[k] = unconfirmedKey{d.last, version}
	}
	d.some.Store(true)
}

// resolve ends the doubt of a key of which the copy shows what was shown.
func (d *unconfirmedKeys) resolve(k key.Key, shown string) {
	if !d.some.Load() {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if one, ok := d.keys[k]; ok && one.version != "" && one.version == shown {
		delete(d.keys, k)
		d.some.Store(d.all != 0 || len(d.keys) > 0)
	}
}

// answered ends the doubt of a key up to a number, and puts it in doubt anew unless the copy shows the version of an answer that is not
// older. Nobody finds the key without a doubt in between.
func (d *unconfirmedKeys) answered(k key.Key, version string, number int64, shows func(key.Key) string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if one, ok := d.keys[k]; ok && one.number <= number {
		delete(d.keys, k)
	}
	if version == "" || shows(k) != version {
		d.put(k, version)
		return
	}
	d.vouch(k, number)
	d.some.Store(d.all != 0 || len(d.keys) > 0)
}

// addAll puts every key in doubt, and returns the number of that.
func (d *unconfirmedKeys) addAll() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last++
	d.all = d.last
	clear(d.keys)
	clear(d.sure)
	d.some.Store(true)
	return d.last
}

// confirm notes that the copy shows of a key what was shown after the doubt of a number. The doubt of every key is then not one of this
// key.
func (d *unconfirmedKeys) confirm(k key.Key, number int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.vouch(k, number)
}

// vouch is confirm for a caller that holds the lock.
func (d *unconfirmedKeys) vouch(k key.Key, number int64) {
	if d.all == 0 || number < d.all {
		return
	}
	if len(d.sure) >= maxUnconfirmed {
		clear(d.sure)
	}
	if d.sure == nil {
		d.sure = map[key.Key]bool{}
	}
	d.sure[k] = true
}

// newest returns the number of the newest doubt.
func (d *unconfirmedKeys) newest() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.last
}

// settle ends the doubts up to a number.
func (d *unconfirmedKeys) settle(number int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for k, one := range d.keys {
		if one.number <= number {
			delete(d.keys, k)
		}
	}
	if d.all <= number {
		d.all = 0
		clear(d.sure)
	}
	d.some.Store(d.all != 0 || len(d.keys) > 0)
}

// of reports whether a key is in doubt. shows returns the version that the copy shows of it, "" for nothing; where that is what was shown,
// the doubt is over.
func (d *unconfirmedKeys) of(k key.Key, shows func(key.Key) string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if one, ok := d.keys[k]; ok {
		if one.version == "" || shows(k) != one.version {
			return true
		}
		delete(d.keys, k)
		d.some.Store(d.all != 0 || len(d.keys) > 0)
	}
	return d.all != 0 && !d.sure[k]
}

// about reports whether a key that a function names is in doubt. shows returns the version that the copy shows of a key, "" for nothing;
// where that is what was shown, the doubt is over.
func (d *unconfirmedKeys) about(of func(key.Key) bool, shows func(key.Key) string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.all != 0 {
		return true
	}
	for k, one := range d.keys {
		if !of(k) {
			continue
		}
		if one.version == "" || shows(k) != one.version {
			return true
		}
		delete(d.keys, k)
	}
	d.some.Store(len(d.keys) > 0)
	return false
}

// shows returns the version of a key in the copy, "" for nothing.
func (c *Cache) shows(k key.Key) string {
	if row := c.copy.Get(k); row != nil {
		return row.Version
	}
	return ""
}

// event notes that a watch shows a change of a key: a version or, if deleted, the end of one.
func (c *Cache) event(k key.Key, version string, deleted bool) {
	if !c.holds(k) {
		return
	}
	shown := c.shows(k)
	c.unconfirmed.resolve(k, shown)
	switch {
	case deleted:
		// What the copy shows is from before, or from after; if it is nothing too.
		c.unconfirmed.add(k, "")
	case shown != version:
		c.unconfirmed.add(k, version)
	}
}

// answer notes that the backend shows a version of a key, "" for nothing, in an answer to a call that began after the doubt of a number:
// an answer is not older than what was shown before.
func (c *Cache) answer(k key.Key, version string, number int64) {
	if c.holds(k) {
		c.unconfirmed.answered(k, version, number, c.shows)
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
		c.unconfirmed.add(k, "")
	}
}

// noteCheck notes that an id was found stored at a version, or absent if that is "".
func (c *Cache) noteCheck(id *resourcepb.ID, version string) {
	if k := key.Of(id); c.holds(k) && c.shows(k) != version {
		c.unconfirmed.add(k, version)
	}
}

// noteListing notes that the backend has shown some or all of the resources of a type. What it has not shown the copy may still show, or may
// have yet to come by.
func (c *Cache) noteListing(typ storage.UnversionedType, shown []*resourcepb.Resource) {
	if !c.meets(typ) {
		return
	}
	number := c.unconfirmed.addAll()
	if c.copy.Bookmarks() {
		return // one proof settles it
	}
	for _, res := range shown {
		if k := key.Of(res.GetId()); c.shows(k) == res.GetVersion() {
			c.unconfirmed.confirm(k, number)
		}
	}
}

// proveProgress has the copy prove how far it is.
func (c *Cache) proveProgress(ctx context.Context) error {
	number := c.unconfirmed.newest()
	if err := c.wait(ctx, c.copy.Barrier); err != nil {
		return err
	}
	if number > 0 {
		c.unconfirmed.settle(number)
	}
	return nil
}
