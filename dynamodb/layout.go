package dynamodb

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/klauspost/compress/zstd"
	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/resourcepb"
)

// The table has two binary keys. A partition key begins with the store's prefix, a NUL and the class of the item, so that
// several stores share a table and never meet:
//
//	class        partition key, after prefix NUL class   sort key
//	resources    group NUL kind                          partition NUL namespace NUL name
//	parts        token of the write                      number of the part
//	edges        hash of the owner's key and uid         hash of the child's key
//	types        -                                       group NUL kind
//	store        -                                       "store"
//	ticks        number                                  "tick"
//	notes        -                                       name, see driver.Mover
//	fence        -                                       "fence", while the store is, or is to be, closed for writing
//	gates        epoch of the fence, number              "gate", once it is shut
//	recalls      token of the transaction, 0             "gate", as if it were the gate of a fence for it alone
//
// Key parts hold no NUL, so byte order is the order of the key's tuple, and nothing is escaped. The sort key of a resource has
// 767 bytes at most, where DynamoDB allows 1,024.
const (
	classResource = 'r'
	classPart     = 'p'
	classEdge     = 'o'
	classType     = 't'
	classStore    = 's'
	classTick     = 'm'
	classNote     = 'j'
	classFence    = 'f'
)

// Attributes of the items.
const (
	attrPK      = "pk"
	attrSK      = "sk"
	attrVersion = "v"   // resources and tombstones: see stamp
	attrUid     = "u"   // resources only: tells them from tombstones
	attrData    = "d"   // a resource, an edge's child, or a part of a resource: a codec byte and the bytes
	attrOwner   = "w"   // edges: the owner's key and uid
	attrExpires = "ttl" // tombstones, retired parts, ticks: unix seconds from which DynamoDB may remove the item
	attrStoreID = "id"
	attrSchema  = "schema"
)

// schemaVersion is that of the items' layout.
const schemaVersion = 1

// layout makes the keys of one store.
type layout struct{ prefix string }

func (l layout) pk(class byte, rest ...byte) []byte {
	b := make([]byte, 0, len(l.prefix)+2+len(rest))
	b = append(b, l.prefix...)
	b = append(b, 0, class)
	return append(b, rest...)
}

// class tells what kind of item of this store a partition key is of; 0: of another store.
func (l layout) class(pk []byte) (class byte, rest []byte) {
	if len(pk) < len(l.prefix)+2 || string(pk[:len(l.prefix)]) != l.prefix || pk[len(l.prefix)] != 0 {
		return 0, nil
	}
	return pk[len(l.prefix)+1], pk[len(l.prefix)+2:]
}

func (l layout) typePK(group, kind string) []byte {
	return l.pk(classResource, []byte(group+"\x00"+kind)...)
}

func (l layout) resource(k key.Key) item {
	return keys(l.typePK(k.Group, k.Kind), []byte(k.Partition+"\x00"+k.Namespace+"\x00"+k.Name))
}

// resourceAt is where a resource would be whose key, of this type, has these bytes.
func (l layout) resourceAt(group, kind string, keyBytes []byte) item {
	return keys(l.typePK(group, kind), keyBytes[len(group)+len(kind)+2:])
}

func (l layout) part(token [16]byte, n int) item {
	return keys(l.pk(classPart, token[:]...), []byte{byte(n)})
}

func (l layout) edge(owner [16]byte, child key.Key) item {
	h := sha256.Sum256(child.Bytes())
	return keys(l.pk(classEdge, owner[:]...), h[:16])
}

func (l layout) typeEntry(group, kind string) item {
	return keys(l.pk(classType), []byte(group+"\x00"+kind))
}

func (l layout) store() item { return keys(l.pk(classStore), []byte("store")) }

func (l layout) note(name string) item { return keys(l.pk(classNote), []byte(name)) }

func (l layout) gate(epoch []byte, n int) item {
	return keys(l.pk(classFence, append(append([]byte{}, epoch...), byte(n))...), []byte("gate"))
}

func (l layout) fence() item { return keys(l.pk(classFence), []byte("fence")) }

func (l layout) tick(n uint16) item {
	return keys(l.pk(classTick, binary.BigEndian.AppendUint16(nil, n)...), []byte("tick"))
}

// tickNumber undoes tick.
func (l layout) tickNumber(it item) (n uint16, ok bool) {
	class, rest := l.class(it.bytes(attrPK))
	if class != classTick || len(rest) != 2 {
		return 0, false
	}
	return binary.BigEndian.Uint16(rest), true
}

// keyOf undoes resource.
func (l layout) keyOf(it item) (key.Key, error) {
	class, rest := l.class(it.bytes(attrPK))
	group, kind, ok := strings.Cut(string(rest), "\x00")
	parts := strings.Split(string(it.bytes(attrSK)), "\x00")
	if class != classResource || !ok || len(parts) != 3 {
		return key.Key{}, fmt.Errorf("the stored key %.1000q, %.1000q is malformed", it.bytes(attrPK), it.bytes(attrSK))
	}
	return key.Key{Group: group, Kind: kind, Partition: parts[0], Namespace: parts[1], Name: parts[2]}, nil
}

// ownerBytes identify an owner: its key and uid.
func ownerBytes(owner *resourcepb.ID) []byte {
	return append(append(key.Of(owner).Bytes(), 0), owner.GetUid()...)
}

// ownerHash is the part of an edge's partition key that says whose edges these are; all zero for no owner.
func ownerHash(owner *resourcepb.ID) (h [16]byte) {
	if owner != nil {
		sum := sha256.Sum256(ownerBytes(owner))
		copy(h[:], sum[:])
	}
	return h
}

// item is a row of the table, or the keys of one.
type item map[string]types.AttributeValue

func keys(pk, sk []byte) item {
	return item{attrPK: binaryValue(pk), attrSK: binaryValue(sk)}
}

func binaryValue(b []byte) types.AttributeValue { return &types.AttributeValueMemberB{Value: b} }

func numberValue(n int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: fmt.Sprint(n)}
}

func (it item) bytes(name string) []byte {
	if b, ok := it[name].(*types.AttributeValueMemberB); ok {
		return b.Value
	}
	return nil
}

// address is the primary key as text, for maps.
func (it item) address() string {
	pk := it.bytes(attrPK)
	return string(binary.BigEndian.AppendUint16(nil, uint16(len(pk)))) + string(pk) + string(it.bytes(attrSK))
}

// edgeIDSize is the most that an edge holds of a child's id. Only a group version is ever longer, which nothing else bounds.
const edgeIDSize = 8 << 10

// edgeData is what an edge shows of a child: its id, or nothing where that is too long, and is to be read from the child.
func edgeData(id *resourcepb.ID) ([]byte, error) {
	if proto.Size(id) <= edgeIDSize {
		return proto.Marshal(id)
	}
	short := proto.Clone(id).(*resourcepb.ID)
	short.Type.GroupVersion = ""
	data, err := proto.Marshal(short)
	return append([]byte{edgeLong}, data...), err
}

// edgeLong begins the data of an edge whose child's group version is left out. No message begins with it.
const edgeLong = 0

// How long DynamoDB keeps what is no longer needed by a read.
const (
	// tombstoneTTL is how long a deletion is remembered, for writers whose answer was lost and for scans that meet the key.
	tombstoneTTL = 2 * time.Hour
	// retiredPartTTL is longer than the 24 hours of a stream, whose records point at parts.
	retiredPartTTL = 26 * time.Hour
)

func expires(now time.Time, life time.Duration) types.AttributeValue {
	return numberValue(now.Add(life).Unix())
}

// A versionRing is what a write leaves on its item, and, as text, the version of the resource. It lets the next writer, who was
// given it as the version, do without a read:
//
//   - token is the write's own, random, so no version is ever used twice, not even after a restore;
//   - ring holds the tokens of the writes before, newest first, so that a writer whose answer was lost finds out what became
//     of the write;
//   - count rises with every write of the key and never falls below the time in milliseconds, by AWS's clock, so that two states
//     of a key can be compared, also across deletion and re-creation;
//   - parts, owner and groupVersion say which other items belong to the resource: the parts of its data and its owner's edge.
//
// A deletion leaves a tombstone with a versionRing of its own, so the chain goes on through it.
type versionRing struct {
	token        [16]byte
	count        uint64
	parts        uint8
	owner        [16]byte // hash of the owner, zero for none
	groupVersion [8]byte  // hash of the group version that the owner's edge shows, zero without an owner
	ring         [][8]byte
}

const (
	ringFormat   = 1
	ringSize     = 8
	ringBaseSize = 1 + 16 + 8 + 1 + 16 + 8
)

func newToken() (t [16]byte) {
	_, _ = rand.Read(t[:]) // never fails
	return t
}

func short(token [16]byte) [8]byte { return [8]byte(token[:8]) }

// next returns the stamp of a new write upon s, which is nil where nothing is known to be stored.
func (s *versionRing) next(now time.Time) *versionRing {
	n := &versionRing{token: newToken(), count: uint64(now.UnixMilli())}
	if s != nil {
		n.count = max(n.count, s.count+1)
		n.ring = append(n.ring, short(s.token))
		n.ring = append(n.ring, s.ring[:min(len(s.ring), ringSize-1)]...)
	}
	return n
}

// follows reports whether the write with this token is s itself or one of those shortly before it.
func (s *versionRing) follows(token [16]byte) bool {
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

func (s *versionRing) setOwner(id, owner *resourcepb.ID) {
	s.owner, s.groupVersion = ownerHash(owner), [8]byte{}
	if owner != nil {
		sum := sha256.Sum256([]byte(id.GetType().GetGroupVersion()))
		copy(s.groupVersion[:], sum[:])
	}
}

func (s *versionRing) hasOwner() bool { return s.owner != [16]byte{} }

// bytes is what the item holds.
func (s *versionRing) bytes() []byte {
	b := make([]byte, 0, ringBaseSize+8*len(s.ring))
	b = append(b, ringFormat)
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
func (s *versionRing) version() string { return base64.RawURLEncoding.EncodeToString(s.bytes()) }

func parseRing(b []byte) (*versionRing, bool) {
	ring := len(b) - ringBaseSize
	if ring < 0 || ring%8 != 0 || ring > 8*ringSize || b[0] != ringFormat {
		return nil, false
	}
	s := &versionRing{token: [16]byte(b[1:17]), count: binary.BigEndian.Uint64(b[17:25]), parts: b[25]}
	copy(s.owner[:], b[26:42])
	copy(s.groupVersion[:], b[42:50])
	for b = b[ringBaseSize:]; len(b) > 0; b = b[8:] {
		s.ring = append(s.ring, [8]byte(b[:8]))
	}
	return s, true
}

// parseVersion undoes version. Any other text is a version that nothing has.
func parseVersion(text string) (*versionRing, bool) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return nil, false
	}
	s, ok := parseRing(b)
	if !ok || s.count == 0 || s.parts > maxParts || s.version() != text { // the decoder overlooks line breaks
		return nil, false
	}
	return s, true
}

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
	// maxInflatedSize bounds what a damaged item could make us decompress.
	maxInflatedSize = driver.MaxSize + 64<<10
	// maxParts is more than the largest resource has.
	maxParts = (maxInflatedSize + partSize - 1) / partSize
)

var codecs = sync.OnceValue(func() (c struct {
	enc *zstd.Encoder
	dec *zstd.Decoder
}) {
	// Errors of these constructors come from wrong options only.
	c.enc, _ = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedDefault), zstd.WithEncoderConcurrency(2))
	c.dec, _ = zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(maxInflatedSize))
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

// headItem is the decoded form of an item of the resource class: a resource, whose data may lie in parts, or a tombstone.
type headItem struct {
	key    key.Key
	ring   *versionRing
	live   bool
	uid    string
	packed []byte // empty for tombstones; what comes after the parts where there are some
}

// head decodes an item. The error is a *storage.DamagedError where at least the key can be read.
func (l layout) head(it item) (*headItem, error) {
	k, err := l.keyOf(it)
	if err != nil {
		return nil, err
	}
	uid := it.bytes(attrUid)
	s, ok := parseRing(it.bytes(attrVersion))
	if !ok || s.parts > maxParts {
		return nil, codec.DamageError(k, string(uid), "", errors.New("the item has no readable stamp"))
	}
	return &headItem{key: k, ring: s, live: uid != nil, uid: string(uid), packed: it.bytes(attrData)}, nil
}

// damageError is the error for what the head should lead to.
func (h *headItem) damageError(err error) error {
	return codec.DamageError(h.key, h.uid, h.ring.version(), err)
}

// decode makes a resource of a head and the packed data that belongs to it.
func (h *headItem) decode(packed []byte) (*resourcepb.Resource, error) {
	data, err := unpack(packed)
	if err != nil {
		return nil, h.damageError(err)
	}
	return h.decodeUnpacked(data)
}

// decodeUnpacked decodes data that is already decompressed.
func (h *headItem) decodeUnpacked(data []byte) (*resourcepb.Resource, error) {
	res, err := codec.DecodeOf(h.key, data, h.ring.version())
	var damaged *storage.DamagedError
	switch {
	case errors.As(err, &damaged):
		return nil, h.damageError(damaged.Err)
	case err == nil && res.GetId().GetUid() != h.uid:
		return nil, h.damageError(fmt.Errorf("the resource has the uid %q", res.GetId().GetUid()))
	}
	return res, err
}

// decisionState is what the decision tables want to know of a head.
func (h *headItem) decisionState() driver.Stored {
	if h == nil || !h.live {
		return driver.Stored{}
	}
	return driver.Stored{Exists: true, Uid: h.uid, Version: h.ring.version()}
}
