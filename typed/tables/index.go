package tables

import (
	"encoding/binary"
	"reflect"
	"strconv"

	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/typed"
)

// Value is what an index has for values: text in the order of its bytes, whole numbers, or false before true.
type Value interface {
	~string | ~bool |
		~int | ~int8 | ~int16 | ~int32 | ~int64 |
		~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64
}

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

// appendValue appends a value in a form whose bytes have the order of values.
func appendValue[K Value](to []byte, value K) []byte {
	switch v := reflect.ValueOf(value); v.Kind() {
	case reflect.String:
		return append(to, v.String()...)
	case reflect.Bool:
		if v.Bool() {
			return append(to, 1)
		}
		return append(to, 0)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return binary.BigEndian.AppendUint64(to, uint64(v.Int())^1<<63)
	default:
		return binary.BigEndian.AppendUint64(to, v.Uint())
	}
}

// The indexes that every table has; those of the program follow.
const (
	ownerIndex = iota
	metadataIndex
	firstIndex
)

// indexPrefix is what the values of an index of a table stand behind in the tree that all indexes share. It has the same length for all.
func indexPrefix(table, index int) string {
	return string(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, uint32(table)), uint32(index)))
}

// prefixEnd returns the first text behind all that begins with a place.
func prefixEnd(place string) string { return string(key.PrefixEnd([]byte(place))) }

// ownerValue is the value of an owner, which without a uid is what those of its incarnations begin with.
func ownerValue(id *resourcepb.ID) string {
	return string(key.Of(id).Bytes()) + "\x00" + id.GetUid()
}

// metadataValue is the value of an entry of the metadata.
func metadataValue(name, value string) string { return strconv.Itoa(len(name)) + ":" + name + value }
