package tables

import (
	"fmt"
	"reflect"
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/typed"
)

// Table is the objects of one resource type, with indexes. It is a description: make it once, as a variable of the program, and give it
// to [Open], to that of several stores if need be.
type Table[T any] struct {
	*table
	codec *typed.Codec[T]
}

// AnyTable is a [Table], whatever its objects are.
type AnyTable interface{ base() *table }

// table is what a Table is without the type of its objects.
type table struct {
	number     int // tells the tables of this process apart
	typ        *resourcepb.Type
	indexes    map[string]tableIndex
	hasGuard   bool
	object     func(*resourcepb.Resource) (any, error)
	encode     func(object any) (*resourcepb.Resource, error)
	values     func(object any) []string
	setVersion func(object any, version string) // sets an object's version; nil if what is put may be another object when it is decoded
	openErr    error                            // why the table cannot be opened
}

// tableIndex is an index of a table.
type tableIndex struct {
	indexNumber int
	indexType   reflect.Type
}

// tables counts those of this process.
var tables atomic.Uint32

// NewTable describes the resources of a type whose payload is the protobuf message T, a pointer to a generated type.
func NewTable[T proto.Message](typ *resourcepb.Type, indexes ...AnyIndex[T]) *Table[T] {
	t := newTable(typ, typed.Messages[T](), indexes)
	t.setVersion = func(object any, version string) { object.(*typed.Object[T]).Version = version }
	return t
}

// NewJSONTable describes the resources of a type whose payload is a Go value by way of JSON; see [typed.NewJSON].
func NewJSONTable[T any](typ *resourcepb.Type, indexes ...AnyIndex[T]) *Table[T] {
	return newTable(typ, typed.JSON[T](), indexes)
}

func newTable[T any](typ *resourcepb.Type, codec *typed.Codec[T], indexes []AnyIndex[T]) *Table[T] {
	t := &table{number: int(tables.Add(1)), typ: proto.CloneOf(typ), indexes: map[string]tableIndex{}}
	prefixes := make([]string, len(indexes))
	for i, x := range indexes {
		if _, twice := t.indexes[x.name()]; twice {
			t.openErr = fmt.Errorf("%w: two indexes of %s have the name %q", storage.ErrInvalid, t, x.name())
		}
		t.indexes[x.name()] = tableIndex{firstIndex + i, reflect.TypeOf(x)}
		prefixes[i] = indexPrefix(t.number, firstIndex+i)
	}
	owners, metadata := indexPrefix(t.number, ownerIndex), indexPrefix(t.number, metadataIndex)
	t.object = func(res *resourcepb.Resource) (any, error) { return codec.Object(res) }
	t.encode = func(object any) (*resourcepb.Resource, error) { return codec.Resource(object.(*typed.Object[T])) }
	t.values = func(object any) (values []string) {
		o := object.(*typed.Object[T])
		if o.Owner != nil {
			values = append(values, owners+ownerValue(o.Owner))
		}
		for name, value := range o.Metadata {
			values = append(values, metadata+metadataValue(name, value))
		}
		for i, x := range indexes {
			values = x.values(o, prefixes[i], values)
		}
		return values
	}
	return &Table[T]{table: t, codec: codec}
}

// WithGuard returns the table with a guard against phantoms: an [Store.Update] that lists its objects fails to commit, and runs again, if
// another one has changed, created or deleted any object of the table meanwhile.
//
// A guard is a resource, of the kind of the table with ".guard" behind it, that every Update which changes the table writes, and every
// Update that lists the table checks. So those that write the table take turns, in all processes: guard small tables that change seldom,
// or those whose rules cannot be kept otherwise ("at most three leaders"). A list then takes one check, however many objects it has. The
// guard holds among programs that use the guarded table; what others write, it does not see.
func (t *Table[T]) WithGuard() *Table[T] {
	guarded := *t.table
	guarded.hasGuard = true
	return &Table[T]{table: &guarded, codec: t.codec}
}

// ID returns the id of an object of the table, without a uid.
func (t *Table[T]) ID(tenancy *resourcepb.Tenancy, name string) *resourcepb.ID {
	return codec.CloneID(&resourcepb.ID{Type: t.typ, Tenancy: tenancy, Name: name})
}

func (t *table) base() *table { return t }

// String names the table in errors.
func (t *table) String() string {
	return "the table of " + t.typ.GetGroup() + "/" + t.typ.GetKind()
}

func (t *table) name() storage.UnversionedType { return storage.UnversionedTypeFrom(t.typ) }

// guardID is the id of the table's guardID.
func (t *table) guardID() *resourcepb.ID {
	return &resourcepb.ID{
		Uid: "guard", Name: "guard", Tenancy: &resourcepb.Tenancy{},
		Type: &resourcepb.Type{Group: t.typ.GetGroup(), GroupVersion: t.typ.GetGroupVersion(), Kind: t.typ.GetKind() + ".guard"},
	}
}

// checkID refuses an id of another table.
func (t *table) checkID(id *resourcepb.ID) error {
	if storage.UnversionedTypeFrom(id.GetType()) != t.name() {
		return fmt.Errorf("%w: %s is no object of %s", storage.ErrInvalid, idString(id), t)
	}
	return nil
}

// entry is a row of the copy.
type entry struct {
	key             key.Key
	id              *resourcepb.ID
	version         string
	table           *table
	object          any                  // a *typed.Object; nil if damaged or a guard
	err             error                // why there is no object
	damagedResource *resourcepb.Resource // what err is about
	values          []string             // of all indexes
	digest          digest
}

// entryOf decodes a resource; t is nil for a guard. What cannot be decoded is an entry too.
func entryOf(t *table, res *resourcepb.Resource) *entry {
	e := &entry{key: key.Of(res.GetId()), id: res.GetId(), version: res.GetVersion(), table: t}
	if t == nil {
		return e
	}
	if e.object, e.err = t.object(res); e.err != nil {
		e.object, e.damagedResource = nil, res
		return e
	}
	e.values = t.values(e.object)
	e.digest = digestOf(t, e.object)
	return e
}

// idString returns the name of a resource as errors have it.
func idString(id *resourcepb.ID) string {
	return fmt.Sprintf("%s/%s %q in %q/%q", id.GetType().GetGroup(), id.GetType().GetKind(), id.GetName(),
		id.GetTenancy().GetPartition(), id.GetTenancy().GetNamespace())
}
