package cache

import (
	"sync"
	"sync/atomic"

	"github.com/ashlar-dev/storage/driver/key"
)

// unconfirmedKeys is the set of keys whose copy may be older than an earlier answer of the cache. Each mark has a number, which
// grows with each mark. The zero value is an empty set.
type unconfirmedKeys struct {
	hasAny atomic.Bool // the set is not empty; the only field that most reads load

	mu         sync.Mutex
	keys       map[key.Key]unconfirmedKey
	allNumber  int64            // number of the newest mark of every key; 0 for none
	exceptions map[key.Key]bool // keys that allNumber does not apply to
	lastNumber int64            // number of the newest mark
}

// unconfirmedKey is the mark of one key.
type unconfirmedKey struct {
	number  int64
	version string // returned earlier; the copy at this version removes the mark. "" if only a barrier removes it
}

// maxUnconfirmed bounds the individually marked keys. The next one marks every key instead.
const maxUnconfirmed = 4096

// add marks a key. version is the version that the caller has seen, or "" if the copy's version cannot confirm the key.
func (d *unconfirmedKeys) add(k key.Key, version string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.addLocked(k, version)
}

// addLocked is add for a caller that holds the lock.
func (d *unconfirmedKeys) addLocked(k key.Key, version string) {
	d.lastNumber++
	_, marked := d.keys[k]
	switch {
	case marked:
		d.keys[k] = unconfirmedKey{number: d.lastNumber} // the order of the two versions is unknown
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

// removeIfAt removes the mark of a key if the copy is at the marked version.
func (d *unconfirmedKeys) removeIfAt(k key.Key, version string) {
	if !d.hasAny.Load() {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if one, ok := d.keys[k]; ok && one.version != "" && one.version == version {
		delete(d.keys, k)
		d.hasAny.Store(d.allNumber != 0 || len(d.keys) > 0)
	}
}

// noteAnswer records an answer of the backend to a call that began after the mark of the given number. It removes the key's marks up to that
// number, and marks the key again unless the copy is at the answer's version. Both happen under one lock, so no reader finds the key unmarked
// in between.
func (d *unconfirmedKeys) noteAnswer(k key.Key, version string, number int64, copyVersion func(key.Key) string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if one, ok := d.keys[k]; ok && one.number <= number {
		delete(d.keys, k)
	}
	if version == "" || copyVersion(k) != version {
		d.addLocked(k, version)
		return
	}
	d.exempt(k, number)
	d.hasAny.Store(d.allNumber != 0 || len(d.keys) > 0)
}

// addAll marks every key.
func (d *unconfirmedKeys) addAll() { d.addAllExcept(nil, 0) }

// addAllExcept marks every key after a list of the backend. confirmed are the keys that the list returned at the copy's version. They are excluded
// unless they were marked during the list, that is, after the mark of the given number: such a mark may be for a state that the list lacks.
func (d *unconfirmedKeys) addAllExcept(confirmed []key.Key, number int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	exceptions := make(map[key.Key]bool, min(len(confirmed), maxUnconfirmed))
	for _, k := range confirmed {
		if d.keys[k].number <= number && (d.allNumber <= number || d.exceptions[k]) && len(exceptions) < maxUnconfirmed {
			exceptions[k] = true
		}
	}
	d.lastNumber++
	d.allNumber, d.exceptions = d.lastNumber, exceptions
	clear(d.keys)
	d.hasAny.Store(true)
}

// exempt excludes a key from the mark of every key, unless that mark is newer than the given number. The caller holds the lock. The copy must be at
// a version of the key that was read after the mark of that number.
func (d *unconfirmedKeys) exempt(k key.Key, number int64) {
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

// latest returns the number of the newest mark.
func (d *unconfirmedKeys) latest() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lastNumber
}

// removeUpTo removes the marks up to a number.
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

// has reports whether a key is marked. It removes the key's mark if the copy is at the marked version; copyVersion returns the copy's version
// of a key, "" for none.
func (d *unconfirmedKeys) has(k key.Key, copyVersion func(key.Key) string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if one, ok := d.keys[k]; ok {
		if one.version == "" || copyVersion(k) != one.version {
			return true
		}
		delete(d.keys, k)
		d.hasAny.Store(d.allNumber != 0 || len(d.keys) > 0)
	}
	return d.allNumber != 0 && !d.exceptions[k]
}

// hasMatch reports whether a matching key is marked. Like has, it removes the marks of the matching keys that the copy confirms.
func (d *unconfirmedKeys) hasMatch(match func(key.Key) bool, copyVersion func(key.Key) string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.allNumber != 0 {
		return true
	}
	for k, one := range d.keys {
		if !match(k) {
			continue
		}
		if one.version == "" || copyVersion(k) != one.version {
			return true
		}
		delete(d.keys, k)
	}
	d.hasAny.Store(len(d.keys) > 0)
	return false
}
