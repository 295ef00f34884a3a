package tables

import (
	"encoding/binary"
	"reflect"
	"strconv"

	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Value is what an index has for values: text in the order of its bytes, whole numbers, or false before true.
type Value interface {
	~string | ~bool |
		~int | ~int8 | ~int16 | ~int32 | ~int64 |
		~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64
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

// The indexes that every table has; those of the program follow.
const (
	ownerIndex = iota
	metadataIndex
	firstIndex
)
