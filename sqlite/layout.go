package sqlite

import (
	"encoding/base64"
	"encoding/binary"
	"math/rand/v2"

	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// position identifies a row of the log by its number and a random tag. The tag differs for a row of the same number
// that is written after a restore of an older copy of the file. All rows of a transaction have the same tag, and
// adjacent transactions have different tags. The position of the row that wrote a resource is the resource's version.
// The position of the newest row that a reader has seen is its position in history. The zero position is before the
// first row.
type position struct{ seq, tag int64 }

const tagBytes = 6

// revision returns the revision of a row. The empty store has revision 1. seqOf is the inverse.
func (m position) revision() int64 { return revision(m.seq) }

// revision returns the revision of a row number. A change has the revision of the last row of its call.
func revision(seq int64) int64 { return seq + 1 }
func seqOf(rev int64) int64    { return rev - 1 }

func randomTag() int64 { return int64(rand.Uint64() >> (64 - 8*tagBytes)) }

// append appends the tag, then the number without leading zeros.
func (m position) append(to []byte) []byte {
	var b [8 + 8]byte
	binary.BigEndian.PutUint64(b[:], uint64(m.tag))
	binary.BigEndian.PutUint64(b[8:], uint64(m.seq))
	number := 8
	for number < 16 && b[number] == 0 {
		number++
	}
	return append(append(to, b[8-tagBytes:8]...), b[number:]...)
}

func decodePosition(b []byte) (position, bool) {
	if len(b) < tagBytes || len(b) > tagBytes+8 || len(b) > tagBytes && b[tagBytes] == 0 {
		return position{}, false
	}
	var tag, seq [8]byte
	copy(tag[8-tagBytes:], b)
	copy(seq[8-(len(b)-tagBytes):], b[tagBytes:])
	m := position{int64(binary.BigEndian.Uint64(seq[:])), int64(binary.BigEndian.Uint64(tag[:]))}
	return m, m.seq >= 0
}

// version returns the position as the version of a resource.
func (m position) version() string {
	var room [24]byte
	return string(m.appendVersion(room[:0]))
}

func (m position) appendVersion(to []byte) []byte {
	var room [16]byte
	return base64.RawURLEncoding.AppendEncode(to, m.append(room[:0]))
}

// parseVersion is the inverse of version. It rejects text that version never returns.
func parseVersion(text string) (position, bool) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || base64.RawURLEncoding.EncodedLen(len(b)) != len(text) {
		return position{}, false // the decoder skips line breaks, which no version contains
	}
	return decodePosition(b)
}

// ownerBytes returns the key and the uid of a resource's owner, joined by NUL, or nil without an owner.
func ownerBytes(owner *resourcepb.ID) []byte {
	if owner == nil {
		return nil
	}
	return ownerEntry(key.Of(owner), owner.GetUid())
}

func ownerEntry(owner driver.Key, uid string) []byte {
	return append(append(owner.Bytes(), 0), uid...)
}

// keyUpperBound is above every key, because it is not valid UTF-8.
var keyUpperBound = []byte{0xff}

type event = driver.Event[position]
