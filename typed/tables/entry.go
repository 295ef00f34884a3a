package tables

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"reflect"
	"strings"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// table is a Table without the type of its objects.
type table struct {
	number     int // unique in this process
	typ        *resourcepb.Type
	indexes    map[string]tableIndex
	hasGuard   bool
	unique     []uniqueIndex
	object     func(*resourcepb.Resource) (any, error)
	encode     func(object any) (*resourcepb.Resource, error)
	values     func(object any) []string
	setVersion func(object any, version string) // sets an object's version; nil if decoding may change an object that was put
	openErr    error                            // error of Open for this table
}

// tableIndex is an index of a table.
type tableIndex struct {
	indexNumber int
	indexType   reflect.Type
}

// String returns the name of the table for errors.
func (t *table) String() string {
	return "the table of " + t.typ.GetGroup() + "/" + t.typ.GetKind()
}

func (t *table) name() storage.UnversionedType { return storage.UnversionedTypeFrom(t.typ) }

// guardID returns the id of the table's guard.
func (t *table) guardID() *resourcepb.ID {
	return &resourcepb.ID{
		Uid: "guard", Name: "guard", Tenancy: &resourcepb.Tenancy{},
		Type: &resourcepb.Type{Group: t.typ.GetGroup(), GroupVersion: t.typ.GetGroupVersion(), Kind: t.typ.GetKind() + ".guard"},
	}
}

// uniqueIndex is an index with at most one object for each value.
type uniqueIndex struct{ name, prefix string }

// claimID returns the id of the resource that the object with a value of a unique index owns. Every transaction that gives the value to an object
// writes the resource, so two of them cannot both be committed.
func (t *table) claimID(x uniqueIndex, value string) *resourcepb.ID {
	id, sum := t.guardID(), sha256.Sum256([]byte(x.name+"\x00"+strings.TrimPrefix(value, x.prefix)))
	id.Name = "unique-" + hex.EncodeToString(sum[:])
	return id
}

// uniqueValues returns the values of an entry in unique indexes, with the ids of their claims.
func (t *table) uniqueValues(e *entry) map[string]*resourcepb.ID {
	if len(t.unique) == 0 || e == nil {
		return nil
	}
	claims := map[string]*resourcepb.ID{}
	for _, value := range e.values {
		for _, x := range t.unique {
			if strings.HasPrefix(value, x.prefix) {
				claims[value] = t.claimID(x, value)
			}
		}
	}
	return claims
}

// claimOf returns the claim of an object.
func claimOf(id *resourcepb.ID, of key.Key) *resourcepb.Resource {
	return &resourcepb.Resource{Id: id, Metadata: map[string]string{"partition": of.Partition, "namespace": of.Namespace, "name": of.Name}}
}

// claimantOf returns the key of the object that has written a claim, without its type; nil if the resource does not have it.
func claimantOf(claim *resourcepb.Resource) *key.Key {
	if m := claim.GetMetadata(); m["name"] != "" {
		return &key.Key{Partition: m["partition"], Namespace: m["namespace"], Name: m["name"]}
	}
	return nil
}

// checkID returns an error for an id of another table.
func (t *table) checkID(id *resourcepb.ID) error {
	if storage.UnversionedTypeFrom(id.GetType()) != t.name() {
		return fmt.Errorf("%w: %s is not an object of %s", storage.ErrInvalid, idString(id), t)
	}
	return nil
}

func (t *table) base() *table { return t }

// entry is the value of a row of the copy.
type entry struct {
	key             key.Key
	id              *resourcepb.ID
	version         string
	table           *table
	object          any                  // a *typed.Object; nil if it cannot be decoded, and for a guard
	err             error                // decoding error
	damagedResource *resourcepb.Resource // what err is about
	values          []string             // in all indexes
	digest          digest
	claimant        *key.Key // of a claim: the key of the object that has written it, without its type
}

// entryOf returns the entry of a resource. t is nil for a guard. An entry of a resource that cannot be decoded has an error and no object.
func entryOf(t *table, res *resourcepb.Resource) *entry {
	e := &entry{key: key.Of(res.GetId()), id: res.GetId(), version: res.GetVersion(), table: t}
	if t == nil {
		e.claimant = claimantOf(res)
		return e
	}
	if e.object, e.err = t.object(res); e.err != nil {
		e.object, e.damagedResource = nil, res
		return e
	}
	e.values = t.values(e.object)
	e.digest = digestOf(t.encode, e.object)
	return e
}

// idString formats an id for errors.
func idString(id *resourcepb.ID) string {
	return fmt.Sprintf("%s/%s %q in %q/%q", id.GetType().GetGroup(), id.GetType().GetKind(), id.GetName(),
		id.GetTenancy().GetPartition(), id.GetTenancy().GetNamespace())
}

func versionOf(e *entry) string {
	if e == nil {
		return ""
	}
	return e.version
}

// assertUnchanged panics if the program has changed the object, in builds with the race detector.
func (e *entry) assertUnchanged() {
	if checksDigests && e != nil && e.object != nil && digestOf(e.table.encode, e.object) != e.digest {
		panic(fmt.Sprintf("tables: %s was changed by the program: objects that a Reader returned or that were put are shared, use Edit for a copy",
			idString(e.id)))
	}
}
