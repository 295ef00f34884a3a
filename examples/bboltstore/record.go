package bboltstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

var errRecord = errors.New("the record is broken")

// join writes fields one after the other, each with its length.
func join(fields ...[]byte) (b []byte) {
	for _, f := range fields {
		b = append(binary.AppendUvarint(b, uint64(len(f))), f...)
	}
	return b
}

// split undoes join.
func split(b []byte, fields ...*[]byte) error {
	for _, f := range fields {
		size, n := binary.Uvarint(b)
		if n <= 0 || size > uint64(len(b)-n) {
			return errRecord
		}
		*f, b = b[n:n+int(size)], b[n+int(size):]
	}
	return nil
}

// record is a row of the bucket of resources: what decisions need, and the resource, which they do not look into.
type record struct {
	version, uid []byte
	child        []byte // the row in the bucket of children, if there is an owner
	data         []byte
}

func (r *record) bytes() []byte { return join(r.version, r.uid, r.child, r.data) }

func readRecord(k, b []byte) (r record, err error) {
	if err := split(b, &r.version, &r.uid, &r.child, &r.data); err != nil {
		at, _ := key.Parse(k) // we put it there
		return r, &storage.DamagedError{ID: at.ID("", ""), Err: err}
	}
	return r, nil
}

// childrenOf is how the rows of an owner's children begin. No key and no uid has a NUL in it.
func childrenOf(owner driver.Key, uid string) []byte {
	return append(append(append(owner.Bytes(), 0), uid...), 0)
}

func childRow(res *resourcepb.Resource, k []byte) []byte {
	if res.GetOwner() == nil {
		return nil
	}
	return append(childrenOf(key.Of(res.GetOwner()), res.GetOwner().GetUid()), k...)
}

// after returns a number for the change after another. The gap is random, so that two copies of a file that went on separately
// have different ones.
func after(number uint64) uint64 { return number + 1 + rand.Uint64N(1<<24) }

func encodeNumber(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// newVersion returns a version that no write had before and none will have again, in no copy of the file.
func newVersion(number uint64) string { return fmt.Sprintf("%x-%016x", number, rand.Uint64()) }
