package tables

import (
	"reflect"

	"github.com/ashlar-dev/storage/typed"
)

// Index finds the objects of a [Table] by values that a function takes from them. Give it to [NewTable]; its methods make queries.
type Index[T any, K Value] struct {
	// Name tells the indexes of a table apart.
	Name string
	// Values returns the values of an object: none, one or several. It is called for each state of an object, from several goroutines; for
	// one that is put, again once it is stored and has its version. It must not change the object, nor keep it.
	Values func(*typed.Object[T]) []K
}

// Is matches the objects that have a value.
func (x Index[T, K]) Is(value K) Query {
	from := string(appendValue(nil, value))
	return x.query(rangeQuery{from: from, to: from + "\x00"})
}

// From matches the objects that have a value of at least first.
func (x Index[T, K]) From(first K) Query {
	return x.query(rangeQuery{from: string(appendValue(nil, first)), toEnd: true, cost: costRange})
}

// To matches the objects that have a value below end.
func (x Index[T, K]) To(end K) Query {
	return x.query(rangeQuery{to: string(appendValue(nil, end)), cost: costRange})
}

// Between matches the objects that have a value of at least first and below end.
func (x Index[T, K]) Between(first, end K) Query {
	return x.query(rangeQuery{from: string(appendValue(nil, first)), to: string(appendValue(nil, end)), cost: costRange})
}

func (x Index[T, K]) query(q rangeQuery) Query {
	q.index, q.indexType = x.Name, reflect.TypeFor[Index[T, K]]()
	return Query{&q}
}

// AnyIndex is an [Index] of a table of T, whatever its values are.
type AnyIndex[T any] interface {
	name() string
	values(o *typed.Object[T], prefix string, to []string) []string
}

func (x Index[T, K]) name() string { return x.Name }

// values appends the values of an object, each behind a prefix, in a form whose bytes have their order.
func (x Index[T, K]) values(o *typed.Object[T], prefix string, to []string) []string {
	for _, v := range x.Values(o) {
		to = append(to, string(appendValue([]byte(prefix), v)))
	}
	return to
}
