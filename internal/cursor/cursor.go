// Package cursor makes the opaque tokens that backends hand out: watch cursors and continue tokens. A token carries the id of
// the store that made it and a checksum, so that text which is no token, and a token of another store, are told apart.
package cursor

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/ashlar-dev/storage"
)

// StoreID identifies a store for as long as its data lives. It is random.
type StoreID [16]byte

// Kind says what a token is for.
type Kind byte

// The kinds of tokens.
const (
	Watch    Kind = 'w' // a position in the store's history
	Snapshot Kind = 's' // a place inside a snapshot, where no watch can start
	Page     Kind = 'p' // the rest of a listing
	Past     Kind = 'r' // the rest of a listing that is read from history
)

func (k Kind) String() string {
	if k == Page || k == Past {
		return "continue token"
	}
	return "cursor"
}

const overhead = 1 + 16 + 4

// Encode returns the token.
func Encode(kind Kind, store StoreID, payload []byte) string {
	b := make([]byte, 0, overhead+len(payload))
	b = append(b, byte(kind))
	b = append(b, store[:]...)
	b = append(b, payload...)
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	return base64.RawURLEncoding.EncodeToString(b)
}

// Is reports whether text looks like a token of this kind.
func Is(kind Kind, token string) bool {
	b, err := base64.RawURLEncoding.DecodeString(token[:min(len(token), 4)])
	return err == nil && len(b) > 0 && Kind(b[0]) == kind
}

// Decode returns the payload of a token of this kind. Text that is no such token gives storage.ErrInvalid, a token of another
// store storage.ErrCompacted.
func Decode(kind Kind, store StoreID, token string) ([]byte, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(token)
	// The decoder skips line breaks, so a token with one in it would be taken for another token.
	if err != nil || base64.RawURLEncoding.EncodedLen(len(b)) != len(token) || len(b) < overhead || crc32.ChecksumIEEE(b[:len(b)-4]) != binary.BigEndian.Uint32(b[len(b)-4:]) {
		return nil, fmt.Errorf("%w: this is no %s", storage.ErrInvalid, kind)
	}
	if kind == Watch && Kind(b[0]) == Snapshot {
		return nil, fmt.Errorf("%w: the cursor was taken inside a snapshot; take it at its end or after it", storage.ErrInvalid)
	}
	if Kind(b[0]) != kind {
		return nil, fmt.Errorf("%w: this is no %s", storage.ErrInvalid, kind)
	}
	if StoreID(b[1:17]) != store {
		return nil, fmt.Errorf("%w: the %s comes from another store", storage.ErrCompacted, kind)
	}
	return b[17 : len(b)-4], nil
}
