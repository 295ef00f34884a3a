package dynamodb

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"time"

	"github.com/ashlar-dev/storage/resourcepb"
)

// A stamp is what a write leaves on its item, and, as text, the version of the resource. It lets the next writer, who was
// given it as the version, do without a read:
//
//   - token is the write's own, random, so no version is ever used twice, not even after a restore;
//   - ring holds the tokens of the writes before, newest first, so that a writer whose answer was lost finds out what became
//     of the write;
//   - count rises with every write of the key and never falls below the time in milliseconds, by AWS's clock, so that two states
//     of a key can be compared, also across deletion and re-creation;
//   - parts, owner and groupVersion say which other items belong to the resource: the parts of its data and its owner's edge.
//
// A deletion leaves a tombstone with a stamp of its own, so the chain goes on through it.
type stamp struct {
	token        [16]byte
	count        uint64
	parts        uint8
	owner        [16]byte // hash of the owner, zero for none
	groupVersion [8]byte  // hash of the group version that the owner's edge shows, zero without an owner
	ring         [][8]byte
}

const (
	stampFormat = 1
	ringSize    = 8
	stampBase   = 1 + 16 + 8 + 1 + 16 + 8
)

func newToken() (t [16]byte) {
	_, _ = rand.Read(t[:]) // never fails
	return t
}

func short(token [16]byte) [8]byte { return [8]byte(token[:8]) }

// next returns the stamp of a new write upon s, which is nil where nothing is known to be stored.
func (s *stamp) next(now time.Time) *stamp {
	n := &stamp{token: newToken(), count: uint64(now.UnixMilli())}
	if s != nil {
		n.count = max(n.count, s.count+1)
		n.ring = append(n.ring, short(s.token))
		n.ring = append(n.ring, s.ring[:min(len(s.ring), ringSize-1)]...)
	}
	return n
}

// follows reports whether the write with this token is s itself or one of those shortly before it.
func (s *stamp) follows(token [16]byte) bool {
	if s.token == token {
		return true
	}
	for _, t := range s.ring {
		if t == short(token) {
			return true
		}
	}
	return false
}

func (s *stamp) setOwner(id, owner *resourcepb.ID) {
	s.owner, s.groupVersion = ownerHash(owner), [8]byte{}
	if owner != nil {
		sum := sha256.Sum256([]byte(id.GetType().GetGroupVersion()))
		copy(s.groupVersion[:], sum[:])
	}
}

func (s *stamp) hasOwner() bool { return s.owner != [16]byte{} }

// bytes is what the item holds.
func (s *stamp) bytes() []byte {
	b := make([]byte, 0, stampBase+8*len(s.ring))
	b = append(b, stampFormat)
	b = append(b, s.token[:]...)
	b = binary.BigEndian.AppendUint64(b, s.count)
	b = append(b, s.parts)
	b = append(b, s.owner[:]...)
	b = append(b, s.groupVersion[:]...)
	for _, t := range s.ring {
		b = append(b, t[:]...)
	}
	return b
}

// version is what the caller sees.
func (s *stamp) version() string { return base64.RawURLEncoding.EncodeToString(s.bytes()) }

func parseStamp(b []byte) (*stamp, bool) {
	ring := len(b) - stampBase
	if ring < 0 || ring%8 != 0 || ring > 8*ringSize || b[0] != stampFormat {
		return nil, false
	}
	s := &stamp{token: [16]byte(b[1:17]), count: binary.BigEndian.Uint64(b[17:25]), parts: b[25]}
	copy(s.owner[:], b[26:42])
	copy(s.groupVersion[:], b[42:50])
	for b = b[stampBase:]; len(b) > 0; b = b[8:] {
		s.ring = append(s.ring, [8]byte(b[:8]))
	}
	return s, true
}

// parseVersion undoes version. Any other text is a version that nothing has.
func parseVersion(text string) (*stamp, bool) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return nil, false
	}
	s, ok := parseStamp(b)
	if !ok || s.count == 0 || s.parts > maxParts || s.version() != text { // the decoder overlooks line breaks
		return nil, false
	}
	return s, true
}
