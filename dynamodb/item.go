package dynamodb

import (
	"errors"
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/resourcepb"
)

// The first byte of stored data says how the rest is to be read.
const (
	codecPlain = 0
	codecZstd  = 1
)

const (
	// compressFrom is the size from which compression is tried.
	compressFrom = 1 << 10
	// inlineSize is the most data an item of its own holds, and partSize that of each part. DynamoDB ends at 400 KB for the
	// whole item, keys and names included.
	inlineSize = 384 << 10
	partSize   = 384 << 10
	// inflated bounds what a damaged item could make us decompress.
	inflated = driver.MaxSize + 64<<10
	// maxParts is more than the largest resource has.
	maxParts = (inflated + partSize - 1) / partSize
)

var codecs = sync.OnceValue(func() (c struct {
	enc *zstd.Encoder
	dec *zstd.Decoder
}) {
	// Errors of these constructors come from wrong options only.
	c.enc, _ = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedDefault), zstd.WithEncoderConcurrency(2))
	c.dec, _ = zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(inflated))
	return c
})

// pack makes stored data of an encoded resource, compressed where that helps.
func pack(data []byte) []byte {
	if len(data) >= compressFrom {
		packed := codecs().enc.EncodeAll(data, append(make([]byte, 0, len(data)/2), codecZstd))
		if len(packed) < len(data)-len(data)/16 {
			return packed
		}
	}
	return append([]byte{codecPlain}, data...)
}

// unpack undoes pack.
func unpack(packed []byte) ([]byte, error) {
	if len(packed) == 0 {
		return nil, errors.New("stored data is empty")
	}
	switch packed[0] {
	case codecPlain:
		return packed[1:], nil
	case codecZstd:
		data, err := codecs().dec.DecodeAll(packed[1:], nil)
		if err != nil {
			return nil, fmt.Errorf("decompress stored data: %w", err)
		}
		return data, nil
	}
	return nil, fmt.Errorf("stored data has codec %d, which this program does not know", packed[0])
}

// split cuts packed data into parts, if it has to, and the rest that the item itself holds.
func split(packed []byte) (parts [][]byte, rest []byte) {
	for len(packed) > inlineSize {
		parts, packed = append(parts, packed[:partSize]), packed[partSize:]
	}
	return parts, packed
}

// head is the decoded form of an item of the resource class: a resource, whose data may lie in parts, or a tombstone.
type head struct {
	key    key.Key
	stamp  *stamp
	live   bool
	uid    string
	packed []byte // empty for tombstones; what comes after the parts where there are some
}

// head decodes an item. The error is a *storage.DamagedError where at least the key can be read.
func (l layout) head(it item) (*head, error) {
	k, err := l.keyOf(it)
	if err != nil {
		return nil, err
	}
	uid := it.bytes(attrUid)
	s, ok := parseStamp(it.bytes(attrStamp))
	if !ok || s.parts > maxParts {
		return nil, codec.DamageError(k, string(uid), "", errors.New("the item has no readable stamp"))
	}
	return &head{key: k, stamp: s, live: uid != nil, uid: string(uid), packed: it.bytes(attrData)}, nil
}

// damaged is the error for what the head should lead to.
func (h *head) damaged(err error) error {
	return codec.DamageError(h.key, h.uid, h.stamp.version(), err)
}

// decode makes a resource of a head and the packed data that belongs to it.
func (h *head) decode(packed []byte) (*resourcepb.Resource, error) {
	data, err := unpack(packed)
	if err != nil {
		return nil, h.damaged(err)
	}
	return h.unpacked(data)
}

// unpacked is decode of data that is unpacked already.
func (h *head) unpacked(data []byte) (*resourcepb.Resource, error) {
	res, err := codec.DecodeOf(h.key, data, h.stamp.version())
	var damaged *storage.DamagedError
	switch {
	case errors.As(err, &damaged):
		return nil, h.damaged(damaged.Err)
	case err == nil && res.GetId().GetUid() != h.uid:
		return nil, h.damaged(fmt.Errorf("the resource has the uid %q", res.GetId().GetUid()))
	}
	return res, err
}
