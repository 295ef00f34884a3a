package cache

import (
	"sync"
	"sync/atomic"

	"github.com/ashlar-dev/storage/driver/key"
)

// unconfirmedKeys are the keys of which the copy may be behind what the cache has shown. The zero value is ready to use.
type unconfirmedKeys struct {
	hasAny atomic.Bool // there are any: what most reads look at

	mu         sync.Mutex
	keys       map[key.Key]unconfirmedKey
	allNumber  int64            // the number of the newest doubt of every key; 0 for none
	exceptions map[key.Key]bool // keys that the doubt of every key is not about
	lastNumber int64            // the number of the newest doubt
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
	d.addLocked(k, version)
}

// addLocked is add for a caller that holds the lock.
func (d *unconfirmedKeys) addLocked(k key.Key, version string) {
	d.lastNumber++
	_, twice := d.keys[k]
	switch {
	case twice:
		d.keys[k] = unconfirmedKey{number: d.lastNumber} // nobody knows which of the two is the newer one
	case len(d.keys) >= maxUnconfirmed:
		d.allNumber = d.lastNumber
		clear(d.keys)
		clear(d.exceptions)
	default:
		if d.keys == nil {
			d.keys = map[key.Key]unconfirmedKey{}
		}
		d.keys[k] = unconfirmedKey{d.lastNumber, version}
	}
	d.hasAny.Store(true)
}

// removeIfShown ends the doubt of a key of which the copy shows what was shown.
func (d *unconfirmedKeys) removeIfShown(k key.Key, shown string) {
	if !d.hasAny.Load() {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if one, ok := d.keys[k]; ok && one.version != "" && one.version == shown {
		delete(d.keys, k)
		d.hasAny.Store(d.allNumber != 0 || len(d.keys) > 0)
	}
}

// noteAnswer ends the doubt of a key up to a number, and puts it in doubt anew unless the copy shows the version of an answer that is not
// older. Nobody finds the key without a doubt in between.
func (d *unconfirmedKeys) noteAnswer(k key.Key, version string, number int64, shows func(key.Key) string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if one, ok := d.keys[k]; ok && one.number <= number {
		delete(d.keys, k)
	}
	if version == "" || shows(k) != version {
		d.addLocked(k, version)
		return
	}
	d.exemptLocked(k, number)
	d.hasAny.Store(d.allNumber != 0 || len(d.keys) > 0)
}

// addAll puts every key in doubt, and returns the number of that.
func (d *unconfirmedKeys) addAll() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lastNumber++
	d.allNumber = d.lastNumber
	clear(d.keys)
	clear(d.exceptions)
	d.hasAny.Store(true)
	return d.lastNumber
}

// exempt notes that the copy shows of a key what was shown after the doubt of a number. The doubt of every key is then not one of this
// key.
func (d *unconfirmedKeys) exempt(k key.Key, number int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.exemptLocked(k, number)
}

// exemptLocked is confirm for a caller that holds the lock.
func (d *unconfirmedKeys) exemptLocked(k key.Key, number int64) {
	if d.allNumber == 0 || number < d.allNumber {
		return
	}
	if len(d.exceptions) >= maxUnconfirmed {
		clear(d.exceptions)
	}
	if d.exceptions == nil {
		d.exceptions = map[key.Key]bool{}
	}
	d.exceptions[k] = true
}

// latest returns the number of the latest doubt.
func (d *unconfirmedKeys) latest() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lastNumber
}

// removeUpTo ends the doubts up to a number.
func (d *unconfirmedKeys) removeUpTo(number int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for k, one := range d.keys {
		if one.number <= number {
			delete(d.keys, k)
		}
	}
	if d.allNumber <= number {
		d.allNumber = 0
		clear(d.exceptions)
	}
	d.hasAny.Store(d.allNumber != 0 || len(d.keys) > 0)
}

// has reports whether a key is in doubt. shows returns the version that the copy shows has it, "" for nothing; where that is what was shown,
// the doubt is over.
func (d *unconfirmedKeys) has(k key.Key, shows func(key.Key) string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if one, ok := d.keys[k]; ok {
		if one.version == "" || shows(k) != one.version {
			return true
		}
		delete(d.keys, k)
		d.hasAny.Store(d.allNumber != 0 || len(d.keys) > 0)
	}
	return d.allNumber != 0 && !d.exceptions[k]
}

// hasMatch reports whether a key that a function names is in doubt. shows returns the version that the copy shows of a key, "" for nothing;
// where that is what was shown, the doubt is over.
func (d *unconfirmedKeys) hasMatch(of func(key.Key) bool, shows func(key.Key) string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.allNumber != 0 {
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
	d.hasAny.Store(len(d.keys) > 0)
	return false
}
