package tables

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// ErrNotUnique is returned by [Table.Put] if another object has a value of the object in an index that is Unique.
var ErrNotUnique = errors.New("another object has this value in a unique index")

// checkUnique returns an error if another object has a value that an object of a table gets. It records the versions of the claims for the commit.
func (a *accessSet) checkUnique(t *table, stored, result *entry) error {
	before := t.uniqueValues(stored)
	for value, claim := range t.uniqueValues(result) {
		a.noteClaim(claim)
		holder := a.holder(t, value, result.key, before[value] != nil)
		if holder == nil && before[value] == nil {
			holder = a.claimant(t, claim, result.key)
		}
		if holder != nil {
			return fmt.Errorf("put %s: %w: %s", idString(result.id), ErrNotUnique, idString(holder))
		}
	}
	for _, claim := range before {
		a.noteClaim(claim)
	}
	return nil
}

// noteClaim records the stored version of a claim.
func (a *accessSet) noteClaim(id *resourcepb.ID) {
	if a.claims == nil {
		a.claims = map[key.Key]string{}
	}
	a.claims[key.Of(id)] = versionOf(a.storedEntry(key.Of(id)))
}

// holder returns the id of the object with a value in the state of the transaction, except the object of a key; nil for none. It counts as a read.
// isKept reports that the stored object of the key has the value: other objects may have it from before the index was unique.
func (a *accessSet) holder(t *table, value string, except key.Key, isKept bool) *resourcepb.ID {
	if !isKept {
		for row := range a.rows.Between(value, value+"\x00") {
			a.noteRead(row.Key, t, row.Value)
			if row.Key != except && a.changeOf(row.Key) == nil {
				return row.Value.id
			}
		}
	}
	for i := range a.touchedKeys {
		at := &a.touchedKeys[i]
		if c := at.change; c == nil || c.result == nil || c.result.key == except || !slices.Contains(c.result.values, value) {
			continue
		}
		if !isKept || at.stored == nil || !slices.Contains(at.stored.values, value) {
			return at.change.result.id
		}
	}
	return nil
}

// claimant reads the object that has written a claim, because the copy may have the claim before that object: DynamoDB does not order the changes
// of several resources. So the commit is refused if that object has changed. It returns the id of an object that cannot be decoded, which may have
// the value, and nil otherwise.
func (a *accessSet) claimant(t *table, claim *resourcepb.ID, except key.Key) *resourcepb.ID {
	stored := a.storedEntry(key.Of(claim))
	if stored == nil || stored.claimant == nil {
		return nil
	}
	k := *stored.claimant
	k.Group, k.Kind = t.typ.GetGroup(), t.typ.GetKind()
	if k == except {
		return nil
	}
	e := a.storedEntry(k)
	if a.noteRead(k, t, e); e != nil && e.err != nil && a.changeOf(k) == nil {
		return e.id
	}
	return nil
}

// claimOperations returns the operations that move claims from values that the transaction removes to values that it adds.
func (a *accessSet) claimOperations() (ops []storage.Op) {
	added, removed := map[string]*resourcepb.Resource{}, map[string]*resourcepb.ID{}
	for i := range a.touchedKeys {
		at := &a.touchedKeys[i]
		if at.change == nil || len(at.table.unique) == 0 {
			continue
		}
		before, after := at.table.uniqueValues(at.stored), at.table.uniqueValues(at.change.result)
		maps.Copy(removed, before)
		for value, claim := range after {
			if added[value] = claimOf(claim, at.key); before[value] != nil {
				delete(removed, value)
				delete(added, value)
			}
		}
	}
	for value, claim := range added {
		delete(removed, value)
		claim.Version = a.claims[key.Of(claim.GetId())]
		ops = append(ops, storage.Op{Write: claim})
	}
	for _, claim := range removed {
		if version := a.claims[key.Of(claim)]; version != "" { // objects from before the index was unique have no claim
			ops = append(ops, storage.Op{Delete: claim, Version: version, Present: true})
		}
	}
	return ops
}
