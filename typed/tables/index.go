package tables

import (
	"reflect"

	"github.com/ashlar-dev/storage/typed"
)

// Index finds the objects of a [Table] by values that a function computes from them. Pass it to [NewTable]; its methods create queries.
type Index[T any, K Value] struct {
	// Name is unique among the indexes of a table.
	Name string
	// Unique allows a value for at most one object of the table: [Table.Put] fails with [ErrNotUnique] for a second one. This holds across all
	// programs whose table has the index. Each value in use occupies a small resource, whose kind is the table's with the suffix ".guard", and one
	// operation of the transactions that add or remove it.
	Unique bool
	// Values returns the values of an object: none, one or several. It is called concurrently, for each state of an object. For an object that
	// is put, it is called again when the object is stored and has its version. It must neither modify nor retain the object.
	Values func(*typed.Object[T]) []K
}

// Is matches the objects with a value.
func (x Index[T, K]) Is(value K) Query {
	from := string(appendValue(nil, value))
	return x.query(rangeQuery{from: from, to: from + "\x00"})
}

// From matches the objects with a value of at least first.
func (x Index[T, K]) From(first K) Query {
	return x.query(rangeQuery{from: string(appendValue(nil, first)), toEnd: true, cost: costRange})
}

// To matches the objects with a value below end.
func (x Index[T, K]) To(end K) Query {
	return x.query(rangeQuery{to: string(appendValue(nil, end)), cost: costRange})
}

// Between matches the objects with a value of at least first and below end.
func (x Index[T, K]) Between(first, end K) Query {
	return x.query(rangeQuery{from: string(appendValue(nil, first)), to: string(appendValue(nil, end)), cost: costRange})
}

func (x Index[T, K]) query(q rangeQuery) Query {
	q.index, q.indexType = x.Name, reflect.TypeFor[Index[T, K]]()
	return Query{&q}
}

// AnyIndex is an [Index] of a table of T with any value type.
type AnyIndex[T any] interface {
	name() string
	isUnique() bool
	values(o *typed.Object[T], prefix string, to []string) []string
}

func (x Index[T, K]) name() string { return x.Name }

func (x Index[T, K]) isUnique() bool { return x.Unique }

// values appends the values of an object. Each has the prefix and an encoding that preserves the order of values.
func (x Index[T, K]) values(o *typed.Object[T], prefix string, to []string) []string {
	for _, v := range x.Values(o) {
		to = append(to, string(appendValue([]byte(prefix), v)))
	}
	return to
}
