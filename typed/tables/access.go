package tables

import (
	"fmt"
	"maps"
	"slices"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/replica"
	"github.com/ashlar-dev/storage/resourcepb"
)

// accessSet records the keys that a transaction has read and the changes that it has made.
type accessSet struct {
	rows        *replica.View[*entry] // the state that the transaction reads
	touchedKeys []touchedKey
	keyIndex    map[key.Key]int // index into touchedKeys; nil for few keys
	undo        []undoRecord
	size        int // of all written resources
	hasListed   bool
	guards      map[*table]guard
	claims      map[key.Key]string // stored versions of the claims of unique values
	hasEnded    bool               // the transaction accepts no more calls
	seenEntries []*entry           // entries returned to the program, in builds with the race detector
}

// storedEntry returns the stored entry of a key, nil for none.
func (a *accessSet) storedEntry(k key.Key) *entry {
	row := a.rows.Get(k)
	if row == nil {
		return nil
	}
	return row.Value
}

// checkOpen returns an error once the transaction has ended.
func (a *accessSet) checkOpen() error {
	if a != nil && a.hasEnded {
		return fmt.Errorf("%w: the transaction has ended: it is valid only inside the function", storage.ErrInvalid)
	}
	return nil
}

// touchedKey is a key that a transaction has read.
type touchedKey struct {
	key    key.Key
	table  *table
	stored *entry // nil for nothing
	change *change
}

// change is the change that a transaction makes to a key.
type change struct {
	stored *entry               // in the store; nil for none
	result *entry               // after the change; nil for a deletion
	res    *resourcepb.Resource // written resource, without its version
	size   int
}

// guard is the access to the guard of a table: a check, or a write.
type guard struct {
	version string // stored version; "" for none
	writes  bool
}

// undoRecord is a change before it was replaced.
type undoRecord struct {
	at     int
	change *change
}

// linearSearchKeys is the maximum number of keys for a linear search, which is then faster than a map.
const linearSearchKeys = 8

// indexOf returns the index of a key in touchedKeys, -1 for none.
func (a *accessSet) indexOf(k key.Key) int {
	if a.keyIndex != nil {
		if i, known := a.keyIndex[k]; known {
			return i
		}
		return -1
	}
	for i := range a.touchedKeys {
		if a.touchedKeys[i].key == k {
			return i
		}
	}
	return -1
}

// find returns the access to a key, nil for none. The result is valid until the next key is touched.
func (a *accessSet) find(k key.Key) *touchedKey {
	if i := a.indexOf(k); i >= 0 {
		return &a.touchedKeys[i]
	}
	return nil
}

// changeOf returns the change of a key, nil for none.
func (a *accessSet) changeOf(k key.Key) *change {
	if t := a.find(k); t != nil {
		return t.change
	}
	return nil
}

// hasChanges reports whether there is anything to write.
func (a *accessSet) hasChanges() bool {
	return slices.ContainsFunc(a.touchedKeys, func(t touchedKey) bool { return t.change != nil })
}

// noteRead records the stored entry of a key that was read.
func (a *accessSet) noteRead(k key.Key, t *table, e *entry) {
	if a.find(k) != nil {
		return
	}
	a.touchedKeys = append(a.touchedKeys, touchedKey{key: k, table: t, stored: e})
	switch n := len(a.touchedKeys); {
	case a.keyIndex != nil:
		a.keyIndex[k] = n - 1
	case n > linearSearchKeys:
		a.keyIndex = make(map[key.Key]int, 4*linearSearchKeys)
		for i := range a.touchedKeys {
			a.keyIndex[a.touchedKeys[i].key] = i
		}
	}
}

// noteList records the stored entries that a list of a table has found.
func (a *accessSet) noteList(t *table, found []*entry) {
	a.hasListed = true
	if t.hasGuard {
		a.noteGuard(t, false)
		return
	}
	for _, e := range found {
		a.noteRead(e.key, t, e)
	}
}

// noteGuard records that a table with a guard was listed or changed.
func (a *accessSet) noteGuard(t *table, written bool) {
	g, exists := a.guards[t]
	if !exists {
		g.version = versionOf(a.storedEntry(key.Of(t.guardID())))
	}
	g.writes = g.writes || written
	if a.guards == nil {
		a.guards = map[*table]guard{}
	}
	a.guards[t] = g
}

// merge applies the changes of the transaction to the result of a query.
func (a *accessSet) merge(t *table, q query, found []*entry) []*entry {
	var mine []*entry
	hidden := map[key.Key]bool{}
	for i := range a.touchedKeys {
		c := a.touchedKeys[i].change
		if c == nil {
			continue
		}
		hidden[a.touchedKeys[i].key] = true
		if c.result != nil && c.result.table == t && q.match(c.result) {
			mine = append(mine, c.result)
		}
	}
	if len(hidden) == 0 {
		return found
	}
	found = slices.DeleteFunc(found, func(e *entry) bool { return hidden[e.key] })
	return sortEntries(q, append(found, mine...))
}

// dropChanges removes all changes, so that only the checks of the reads are left.
func (a *accessSet) dropChanges() {
	for i := range a.touchedKeys {
		a.touchedKeys[i].change = nil
	}
	for t, g := range a.guards {
		a.guards[t] = guard{version: g.version}
	}
}

// setChange sets the change of a key that was read; nil removes it.
func (a *accessSet) setChange(t *table, k key.Key, c *change) {
	i := a.indexOf(k)
	at := &a.touchedKeys[i]
	if at.change == nil && c == nil {
		return
	}
	if at.change != nil {
		a.size -= at.change.size
	}
	if c != nil {
		a.size += c.size
	}
	a.undo = append(a.undo, undoRecord{i, at.change})
	if at.change = c; t.hasGuard {
		a.noteGuard(t, true)
	}
}

// savepoint is a state of an accessSet for a later restore.
type savepoint struct {
	touchedKeys, undo, size int
	hasListed               bool
	guards                  map[*table]guard
}

func (a *accessSet) savepoint() savepoint {
	return savepoint{len(a.touchedKeys), len(a.undo), a.size, a.hasListed, maps.Clone(a.guards)}
}

func (a *accessSet) restore(p savepoint) {
	for len(a.undo) > p.undo {
		last := a.undo[len(a.undo)-1]
		a.touchedKeys[last.at].change = last.change
		a.undo = a.undo[:len(a.undo)-1]
	}
	for _, t := range a.touchedKeys[p.touchedKeys:] {
		delete(a.keyIndex, t.key)
	}
	a.touchedKeys, a.size, a.hasListed, a.guards = a.touchedKeys[:p.touchedKeys], p.size, p.hasListed, p.guards
}

// assertUnchanged panics if the program has changed an object that it has read or put, in builds with the race detector.
func (a *accessSet) assertUnchanged() {
	for _, e := range a.seenEntries {
		e.assertUnchanged()
	}
	for i := range a.touchedKeys {
		if c := a.touchedKeys[i].change; c != nil {
			c.result.assertUnchanged()
		}
	}
}
