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

// doubts are the keys of which the copy may be behind what the cache has shown. The zero value is ready to use.
type doubts struct {
	some atomic.Bool // there are any: what most reads look at

	mu   sync.Mutex
	keys map[key.Key]doubt
	all  int64            // the number of the newest doubt of every key; 0 for none
	sure map[key.Key]bool // keys that the doubt of every key is not about
	last int64            // the number of the newest doubt
}

// doubt is that of a key.
type doubt struct {
	number  int64
	version string // what was shown, which ends the doubt once the copy shows the same; "" if only proof ends it
}

// mostDoubts is how many keys are told apart. If there are more, every key is in doubt.
const mostDoubts = 4096

// add puts a key in doubt, of which a version was shown, or, if it is "", something that the copy cannot be held against.
func (d *doubts) add(k key.Key, version string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.put(k, version)
}

// put is add for a caller that holds the lock.
func (d *doubts) put(k key.Key, version string) {
	d.last++
	_, twice := d.keys[k]
	switch {
	case twice:
		d.keys[k] = doubt{number: d.last} // nobody knows which of the two is the newer one
	case len(d.keys) >= mostDoubts:
		d.all = d.last
		clear(d.keys)
		clear(d.sure)
	default:
		if d.keys == nil {
			d.keys = map[key.Key]doubt{}
		}
		d.keys[k] = doubt{d.last, version}
	}
	d.some.Store(true)
}

// resolve ends the doubt of a key of which the copy shows what was shown.
func (d *doubts) resolve(k key.Key, shown string) {
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
func (d *doubts) answered(k key.Key, version string, number int64, shows func(key.Key) string) {
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
func (d *doubts) addAll() int64 {
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
func (d *doubts) confirm(k key.Key, number int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.vouch(k, number)
}

// vouch is confirm for a caller that holds the lock.
func (d *doubts) vouch(k key.Key, number int64) {
	if d.all == 0 || number < d.all {
		return
	}
	if len(d.sure) >= mostDoubts {
		clear(d.sure)
	}
	if d.sure == nil {
		d.sure = map[key.Key]bool{}
	}
	d.sure[k] = true
}

// newest returns the number of the newest doubt.
func (d *doubts) newest() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.last
}

// settle ends the doubts up to a number.
func (d *doubts) settle(number int64) {
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
func (d *doubts) of(k key.Key, shows func(key.Key) string) bool {
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
func (d *doubts) about(of func(key.Key) bool, shows func(key.Key) string) bool {
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
	c.doubts.resolve(k, shown)
	switch {
	case deleted:
		// What the copy shows is from before, or from after; if it is nothing too.
		c.doubts.add(k, "")
	case shown != version:
		c.doubts.add(k, version)
	}
}

// answer notes that the backend shows a version of a key, "" for nothing, in an answer to a call that began after the doubt of a number:
// an answer is not older than what was shown before.
func (c *Cache) answer(k key.Key, version string, number int64) {
	if c.holds(k) {
		c.doubts.answered(k, version, number, c.shows)
	}
}

// refused notes that a write, a deletion or a check of an id at a version has failed. Where the copy shows what would have let it succeed,
// or would have had it fail otherwise, it is behind.
func (c *Cache) refused(id *resourcepb.ID, version string, err error) {
	k := key.Of(id)
	if !c.holds(k) {
		return
	}
	row := c.copy.Get(k)
	switch {
	case errors.Is(err, storage.ErrCASFailure) && (row == nil && version == "" || row != nil && row.Version == version),
		errors.Is(err, storage.ErrWrongUid) && (row == nil || uid(row) == id.GetUid()):
		c.doubts.add(k, "")
	}
}

// checked notes that an id was found stored at a version, or absent if that is "".
func (c *Cache) checked(id *resourcepb.ID, version string) {
	if k := key.Of(id); c.holds(k) && c.shows(k) != version {
		c.doubts.add(k, version)
	}
}

// listed notes that the backend has shown some or all of the resources of a type. What it has not shown the copy may still show, or may
// have yet to come by.
func (c *Cache) listed(typ storage.UnversionedType, shown []*resourcepb.Resource) {
	if !c.meets(typ) {
		return
	}
	number := c.doubts.addAll()
	if c.copy.Bookmarks() {
		return // one proof settles it
	}
	for _, res := range shown {
		if k := key.Of(res.GetId()); c.shows(k) == res.GetVersion() {
			c.doubts.confirm(k, number)
		}
	}
}

// proven has the copy prove how far it is.
func (c *Cache) proven(ctx context.Context) error {
	number := c.doubts.newest()
	if err := c.wait(ctx, c.copy.Barrier); err != nil {
		return err
	}
	if number > 0 {
		c.doubts.settle(number)
	}
	return nil
}
