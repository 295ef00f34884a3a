package tables

import (
	"fmt"
	"reflect"
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/typed"
)

// Table is the objects of one resource type, with indexes. It is a description: create it once, as a variable of the program, and pass it to [Open].
// Several stores may share it.
type Table[T any] struct {
	*table
	codec *typed.Codec[T]
}

// AnyTable is a [Table] of any object type.
type AnyTable interface{ base() *table }

// tables counts the tables of this process.
var tables atomic.Uint32

// NewTable returns a table of resources with a payload of the protobuf message T, a pointer to a generated type.
func NewTable[T proto.Message](typ *resourcepb.Type, indexes ...AnyIndex[T]) *Table[T] {
	t := newTable(typ, typed.Messages[T](), indexes)
	t.setVersion = func(object any, version string) { object.(*typed.Object[T]).Version = version }
	return t
}

// NewJSONTable returns a table of resources with a payload of a Go value stored as JSON; see [typed.NewJSON].
func NewJSONTable[T any](typ *resourcepb.Type, indexes ...AnyIndex[T]) *Table[T] {
	return newTable(typ, typed.JSON[T](), indexes)
}

func newTable[T any](typ *resourcepb.Type, codec *typed.Codec[T], indexes []AnyIndex[T]) *Table[T] {
	t := &table{number: int(tables.Add(1)), typ: proto.CloneOf(typ), indexes: map[string]tableIndex{}}
	prefixes := make([]string, len(indexes))
	for i, x := range indexes {
		if _, exists := t.indexes[x.name()]; exists {
			t.openErr = fmt.Errorf("%w: two indexes of %s have the name %q", storage.ErrInvalid, t, x.name())
		}
		t.indexes[x.name()] = tableIndex{firstIndex + i, reflect.TypeOf(x)}
		prefixes[i] = indexPrefix(t.number, firstIndex+i)
		if x.isUnique() {
			t.unique = append(t.unique, uniqueIndex{x.name(), prefixes[i]})
		}
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

// WithGuard returns the table with a guard against phantoms: a [Store.Update] that has listed the table conflicts with every change, creation or
// deletion of an object of the table.
//
// The guard is a resource whose kind is the table's with the suffix ".guard". Every Update that changes the table writes it, and every Update that
// lists the table checks it. So writers of the table take turns, across all processes. Use a guard for small tables that rarely change, or for rules
// that need one ("at most three leaders"). A list then needs one check, however many objects it returns. The guard protects only programs that use
// the guarded table; it does not detect other writers.
func (t *Table[T]) WithGuard() *Table[T] {
	guarded := *t.table
	guarded.hasGuard = true
	return &Table[T]{table: &guarded, codec: t.codec}
}

// ID returns the id of an object of the table, without a uid.
func (t *Table[T]) ID(tenancy *resourcepb.Tenancy, name string) *resourcepb.ID {
	return codec.CloneID(&resourcepb.ID{Type: t.typ, Tenancy: tenancy, Name: name})
}
