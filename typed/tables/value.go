package tables

import (
	"encoding/binary"
	"reflect"
	"strconv"

	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Value is the type of the values of an index: text in byte order, integers, or false before true.
type Value interface {
	~string | ~bool |
		~int | ~int8 | ~int16 | ~int32 | ~int64 |
		~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64
}

// appendValue appends an encoding of a value that preserves the order of values.
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

// indexPrefix returns the prefix of the values of one index in the tree that all indexes share. All prefixes have the same length.
func indexPrefix(table, index int) string {
	return string(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, uint32(table)), uint32(index)))
}

// prefixEnd returns the first text after all texts with a prefix.
func prefixEnd(prefix string) string { return string(key.PrefixEnd([]byte(prefix))) }

// ownerValue returns the index value of an owner. Without a uid it is a prefix of the values of all its incarnations.
func ownerValue(id *resourcepb.ID) string {
	return string(key.Of(id).Bytes()) + "\x00" + id.GetUid()
}

// metadataValue returns the index value of a metadata entry.
func metadataValue(name, value string) string { return strconv.Itoa(len(name)) + ":" + name + value }

// The indexes of every table. The program's indexes follow.
const (
	ownerIndex = iota
	metadataIndex
	firstIndex
)
