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
		if a.noteClaim(claim); before[value] != nil {
			continue
		}
		if holder := a.holder(t, value, result.key); holder != nil {
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
func (a *accessSet) holder(t *table, value string, except key.Key) *resourcepb.ID {
	for row := range a.rows.Between(value, value+"\x00") {
		a.noteRead(row.Key, t, row.Value)
		if row.Key != except && a.changeOf(row.Key) == nil {
			return row.Value.id
		}
	}
	for i := range a.touchedKeys {
		if c := a.touchedKeys[i].change; c != nil && c.result != nil && c.result.key != except && slices.Contains(c.result.values, value) {
			return c.result.id
		}
	}
	return nil
}

// claimOperations returns the operations that move claims from values that the transaction removes to values that it adds.
func (a *accessSet) claimOperations() (ops []storage.Op) {
	added, removed := map[string]*resourcepb.ID{}, map[string]*resourcepb.ID{}
	for i := range a.touchedKeys {
		at := &a.touchedKeys[i]
		if at.change == nil || len(at.table.unique) == 0 {
			continue
		}
		before, after := at.table.uniqueValues(at.stored), at.table.uniqueValues(at.change.result)
		maps.Copy(removed, before)
		for value, claim := range after {
			if added[value] = claim; before[value] != nil {
				delete(removed, value)
				delete(added, value)
			}
		}
	}
	for value, claim := range added {
		delete(removed, value)
		ops = append(ops, storage.Op{Write: &resourcepb.Resource{Id: claim, Version: a.claims[key.Of(claim)]}})
	}
	for _, claim := range removed {
		if version := a.claims[key.Of(claim)]; version != "" { // objects from before the index was unique have no claim
			ops = append(ops, storage.Op{Delete: claim, Version: version, Present: true})
		}
	}
	return ops
}
