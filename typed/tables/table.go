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

// Table is the objects of one resource type, with indexes. It is a description: make it once, as a variable of the program, and give it
// to [Open], to that of several stores if need be.
type Table[T any] struct {
	*table
	codec *typed.Codec[T]
}

// AnyTable is a [Table], whatever its objects are.
type AnyTable interface{ base() *table }

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
