package bboltstore

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"

	bolt "go.etcd.io/bbolt"

	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// The buckets, and the format of their contents; the package comment describes it.
var storeBucket, resourcesBucket, childrenBucket, logBucket = []byte("store"), []byte("resources"), []byte("children"), []byte("log")

const format = "1"

// A row of the bucket of resources is the version, a NUL, and the resource in the encoding of package driver.

func encodeRow(version string, data []byte) []byte {
	return append(append([]byte(version), 0), data...)
}

func decodeRow(k driver.Key, row []byte) (*resourcepb.Resource, error) {
	version, data, _ := bytes.Cut(row, []byte{0})
	return driver.Decode(k, data, string(version))
}

// childrenOf returns the key prefix of an owner's children. Keys and uids contain no NUL.
func childrenOf(owner driver.Key, uid string) []byte {
	return append(append(append(owner.Bytes(), 0), uid...), 0)
}

// childKey returns the key of a resource in the bucket of children, or nil if it has no owner.
func childKey(res *resourcepb.Resource) []byte {
	if res.GetOwner() == nil {
		return nil
	}
	return key.Of(res.GetId()).Append(childrenOf(key.Of(res.GetOwner()), res.GetOwner().GetUid()))
}

// The kinds of rows in the log.
const written, deleted = 'w', 'd'

// after returns a number for the change that follows another. The gap is random, so that two copies of a file with separate changes
// use different numbers.
func after(number uint64) uint64 { return number + 1 + rand.Uint64N(1<<24) }

func encodeNumber(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// newest returns the number of the newest change.
func newest(tx *bolt.Tx) uint64 {
	k, _ := tx.Bucket(logBucket).Cursor().Last()
	return binary.BigEndian.Uint64(k)
}
