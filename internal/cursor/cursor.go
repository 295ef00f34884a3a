// Package cursor encodes the opaque tokens of backends: watch cursors and continue tokens. A token contains the id of its store and
// a checksum, which distinguishes a token of another store from text that is no token.
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

// Kind is the purpose of a token.
type Kind byte

// The kinds of tokens.
const (
	Watch    Kind = 'w' // a position in the store's history
	Snapshot Kind = 's' // a position inside a snapshot; no watch can start there
	Page     Kind = 'p' // the rest of a listing
	Revision Kind = 'r' // the rest of a listing that is read from history
)

func (k Kind) String() string {
	if k == Page || k == Revision {
		return "continue token"
	}
	return "cursor"
}

const overhead = 1 + 16 + 4

// Encode returns a token.
func Encode(kind Kind, store StoreID, payload []byte) string {
	b := make([]byte, 0, overhead+len(payload))
	b = append(b, byte(kind))
	b = append(b, store[:]...)
	b = append(b, payload...)
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	return base64.RawURLEncoding.EncodeToString(b)
}

// Is reports whether text has the form of a token of this kind.
func Is(kind Kind, token string) bool {
	b, err := base64.RawURLEncoding.DecodeString(token[:min(len(token), 4)])
	return err == nil && len(b) > 0 && Kind(b[0]) == kind
}

// Decode returns the payload of a token of this kind. Any other text is storage.ErrInvalid, a token of another store
// storage.ErrCompacted.
func Decode(kind Kind, store StoreID, token string) ([]byte, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(token)
	// The base64 decoder skips line breaks: a token with a line break would decode like the same token without it.
	if err != nil || base64.RawURLEncoding.EncodedLen(len(b)) != len(token) || len(b) < overhead || crc32.ChecksumIEEE(b[:len(b)-4]) != binary.BigEndian.Uint32(b[len(b)-4:]) {
		return nil, fmt.Errorf("%w: malformed %s", storage.ErrInvalid, kind)
	}
	if kind == Watch && Kind(b[0]) == Snapshot {
		return nil, fmt.Errorf("%w: the cursor was taken inside a snapshot; take it at its end or after it", storage.ErrInvalid)
	}
	if Kind(b[0]).String() != kind.String() { // stores of different kinds have different continue tokens
		return nil, fmt.Errorf("%w: malformed %s", storage.ErrInvalid, kind)
	}
	if StoreID(b[1:17]) != store {
		return nil, fmt.Errorf("%w: the %s comes from another store", storage.ErrCompacted, kind)
	}
	if Kind(b[0]) != kind {
		return nil, fmt.Errorf("%w: malformed %s", storage.ErrInvalid, kind)
	}
	return b[17 : len(b)-4], nil
}
