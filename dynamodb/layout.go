package dynamodb

import (
	"bytes"
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

// The table has two binary keys. A partition key begins with the store's prefix, a NUL and the class of the item, so stores in the
// same table have disjoint keys:
//
//	class        partition key, after prefix NUL class   sort key
//	resources    [bucket] group NUL kind                 partition NUL namespace NUL name
//	parts        token of the write                      number of the part
//	edges        hash of the owner's key and uid         hash of the child's key
//	types        -                                       group NUL kind
//	store        -                                       "store"
//	ticks        number                                  "tick"
//	notes        -                                       name, see driver.Mover
//	guards       name of the note, number                "guard", a copy of the note's revision
//	fence        -                                       "fence", while the store is closed for writing or about to be
//	gates        epoch of the fence, number              "gate", once it is closed
//	recalls      token of the transaction, 0             "gate", like the gate of a fence for this transaction alone
//
// A partition key accepts 1,000 write units a second. A store of schema 2 or 3 therefore divides the resources of a type into buckets, by a
// hash of the sort key; schema 1 has no buckets. With schema 3 the item of a type contains the set of its used buckets, so that a list of
// a small type queries few of them.
//
// Key parts contain no NUL, so byte order equals the order of the key's tuple, and no escaping is necessary. The sort key of a
// resource has at most 767 bytes; DynamoDB allows 1,024.
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
	attrVersion = "v"   // resources and tombstones: see versionRing
	attrUid     = "u"   // resources only: distinguishes them from tombstones
	attrData    = "d"   // a resource, an edge's child, or a part of a resource: a codec byte and the bytes
	attrOwner   = "w"   // edges: the owner's key and uid
	attrExpires = "ttl" // tombstones, retired parts, ticks: Unix time in seconds after which DynamoDB may remove the item
	attrGuard   = "g"   // notes that serve as a guard
	attrStoreID = "id"
	attrSchema  = "schema"
	attrBuckets = "n" // of the store: the number of buckets, less 1
	attrUsed    = "b" // of a type, with schema 3: its bucketSet
)

// The versions of the items' layout.
const (
	schemaVersion         = 1
	bucketsSchemaVersion  = 2
	usedSetsSchemaVersion = 3
)

// layout builds the keys of one store.
type layout struct {
	prefix      string
	buckets     int  // 0 and 1: keys without buckets
	hasUsedSets bool // types have a set of used buckets
	partSize    int  // size limit of the data in an item; 0: defaultPartSize
}

// bucketCount returns the number of buckets, at least 1.
func (l layout) bucketCount() int { return max(l.buckets, 1) }

// bucketOf returns the bucket of a resource.
func (l layout) bucketOf(sortKey []byte) int {
	if l.buckets <= 1 {
		return 0
	}
	h := sha256.Sum256(sortKey)
	return int(h[0]) % l.buckets
}

// typeBucketOf returns the bucket of a resource with its type.
func (l layout) typeBucketOf(k key.Key) typeBucket {
	return typeBucket{storage.UnversionedType{Group: k.Group, Kind: k.Kind}, l.bucketOf(sortKeyOf(k))}
}

// allBuckets returns the set of all buckets.
func (l layout) allBuckets() (s bucketSet) {
	for bucket := range l.bucketCount() {
		s.add(bucket)
	}
	return s
}

// usedBuckets returns the buckets that contain the resources of a type, from the type's item; entry is nil if the type has none. A type of a store
// without used sets may use all buckets.
func (l layout) usedBuckets(entry item) (s bucketSet) {
	switch {
	case entry == nil:
		return s
	case !l.hasUsedSets:
		return l.allBuckets()
	}
	copy(s[:], entry.bytes(attrUsed))
	return s
}

// withBucket returns the used buckets of a type after a resource was created in a bucket.
func (l layout) withBucket(s bucketSet, bucket int) bucketSet {
	if !l.hasUsedSets {
		return l.allBuckets()
	}
	s.add(bucket)
	return s
}

// typeItem returns the item of a type that uses these buckets.
func (l layout) typeItem(typ storage.UnversionedType, used bucketSet) item {
	it := l.typeEntry(typ.Group, typ.Kind)
	if l.hasUsedSets {
		it[attrUsed] = binaryValue(used[:(l.buckets+7)/8])
	}
	return it
}

func (l layout) pk(class byte, rest ...byte) []byte {
	b := make([]byte, 0, len(l.prefix)+2+len(rest))
	b = append(b, l.prefix...)
	b = append(b, 0, class)
	return append(b, rest...)
}

// class returns the class of an item of this store from its partition key, or 0 if the key belongs to another store.
func (l layout) class(pk []byte) (class byte, rest []byte) {
	if len(pk) < len(l.prefix)+2 || string(pk[:len(l.prefix)]) != l.prefix || pk[len(l.prefix)] != 0 {
		return 0, nil
	}
	return pk[len(l.prefix)+1], pk[len(l.prefix)+2:]
}

// typePK returns the partition key of a type's bucket.
func (l layout) typePK(group, kind string, bucket int) []byte {
	name := group + "\x00" + kind
	if l.buckets > 1 {
		name = string([]byte{byte(bucket)}) + name
	}
	return l.pk(classResource, []byte(name)...)
}

func (l layout) resource(k key.Key) item {
	sk := sortKeyOf(k)
	return keys(l.typePK(k.Group, k.Kind, l.bucketOf(sk)), sk)
}

// sortKeyOf returns the sort key of a resource.
func sortKeyOf(k key.Key) []byte { return []byte(k.Partition + "\x00" + k.Namespace + "\x00" + k.Name) }

// sortKey returns the sort key of the resource of a type whose key has these bytes.
func sortKey(group, kind, keyBytes string) []byte { return []byte(keyBytes[len(group)+len(kind)+2:]) }

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

func (l layout) guardLeaf(name string, n int) item {
	return keys(l.pk(classNote, append([]byte(name), 0, byte(n))...), []byte("guard"))
}

func (l layout) gate(epoch []byte, n int) item {
	return keys(l.pk(classFence, append(append([]byte{}, epoch...), byte(n))...), []byte("gate"))
}

func (l layout) fence() item { return keys(l.pk(classFence), []byte("fence")) }

func (l layout) tick(n uint16) item {
	return keys(l.pk(classTick, binary.BigEndian.AppendUint16(nil, n)...), []byte("tick"))
}

// tickNumber is the inverse of tick.
func (l layout) tickNumber(it item) (n uint16, ok bool) {
	class, rest := l.class(it.bytes(attrPK))
	if class != classTick || len(rest) != 2 {
		return 0, false
	}
	return binary.BigEndian.Uint16(rest), true
}

// keyOf is the inverse of resource.
func (l layout) keyOf(it item) (key.Key, error) {
	class, rest := l.class(it.bytes(attrPK))
	if l.buckets > 1 && len(rest) > 0 {
		rest = rest[1:]
	}
	group, kind, ok := strings.Cut(string(rest), "\x00")
	parts := strings.Split(string(it.bytes(attrSK)), "\x00")
	if class != classResource || !ok || len(parts) != 3 {
		return key.Key{}, fmt.Errorf("the stored key %.1000q, %.1000q is malformed", it.bytes(attrPK), it.bytes(attrSK))
	}
	return key.Key{Group: group, Kind: kind, Partition: parts[0], Namespace: parts[1], Name: parts[2]}, nil
}

// ownerBytes returns the bytes that identify an owner: its key and uid.
func ownerBytes(owner *resourcepb.ID) []byte {
	return append(append(key.Of(owner).Bytes(), 0), owner.GetUid()...)
}

// ownerHash is the part of an edge's partition key that identifies the owner. It is zero without an owner.
func ownerHash(owner *resourcepb.ID) (h [16]byte) {
	if owner != nil {
		sum := sha256.Sum256(ownerBytes(owner))
		copy(h[:], sum[:])
	}
	return h
}

// item is an item of the table, or only its keys.
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

// address returns the primary key as text, for maps.
func (it item) address() string {
	pk := it.bytes(attrPK)
	return string(binary.BigEndian.AppendUint16(nil, uint16(len(pk)))) + string(pk) + string(it.bytes(attrSK))
}

// edgeIDSize is the size limit of a child's id in an edge. Only a group version, whose length is not limited elsewhere, can exceed
// it.
const edgeIDSize = 8 << 10

// edgeData returns the data that an edge stores about a child: its id. If the id is too long, the data is edgeLong and the id
// without the group version, which must be read from the child.
func edgeData(id *resourcepb.ID) ([]byte, error) {
	if proto.Size(id) <= edgeIDSize {
		return proto.Marshal(id)
	}
	short := proto.Clone(id).(*resourcepb.ID)
	short.Type.GroupVersion = ""
	data, err := proto.Marshal(short)
	return append([]byte{edgeLong}, data...), err
}

// decodeEdge returns the id of the child in an edge. long reports that it lacks its group version.
func decodeEdge(edge item) (child *resourcepb.ID, long bool, err error) {
	data, long := bytes.CutPrefix(edge.bytes(attrData), []byte{edgeLong})
	child = new(resourcepb.ID)
	if err := proto.Unmarshal(data, child); err != nil {
		return nil, false, fmt.Errorf("decode a stored reference: %w", err)
	}
	return child, long, nil
}

// edgeLong begins the data of an edge that omits the child's group version. No encoded message begins with it.
const edgeLong = 0

// Retention of items that are needed only by slow readers.
const (
	// tombstoneTTL is the retention of a tombstone, which serves writers whose answer was lost and scans that reach the key.
	tombstoneTTL = 2 * time.Hour
	// retiredPartTTL exceeds the 24 hours of a stream, whose records refer to parts.
	retiredPartTTL = 26 * time.Hour
)

func expires(now time.Time, life time.Duration) types.AttributeValue {
	return numberValue(now.Add(life).Unix())
}

// A versionRing is stored in an item by each write; as text, it is the version of the resource. The next writer passes it as the
// expected version, and therefore needs no read:
//
//   - token is the write's own, random, so a version is never used twice, even after a restore;
//   - ring contains the tokens of the previous writes, newest first, so a writer whose answer was lost can find out whether its
//     write was applied;
//   - count rises with every write of the key and is never below the time in milliseconds, by AWS's clock, so two states of a key
//     can be ordered, even across deletion and re-creation;
//   - parts, owner and groupVersion identify the other items of the resource: the parts of its data and its owner's edge.
//
// A deletion leaves a tombstone with a versionRing of its own, which continues the chain.
type versionRing struct {
	token        [16]byte
	count        uint64
	parts        uint8
	owner        [16]byte // hash of the owner, zero for none
	groupVersion [8]byte  // hash of the group version in the owner's edge, zero without an owner
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

// next returns the versionRing of a new write after s. s is nil if no stored state is known.
func (s *versionRing) next(now time.Time) *versionRing {
	n := &versionRing{token: newToken(), count: uint64(now.UnixMilli())}
	if s != nil {
		n.count = max(n.count, s.count+1)
		n.ring = append(n.ring, short(s.token))
		n.ring = append(n.ring, s.ring[:min(len(s.ring), ringSize-1)]...)
	}
	return n
}

// follows reports whether the write with this token is s itself or one of its recent predecessors.
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
	if s.owner, s.groupVersion = ownerHash(owner), [8]byte{}; owner != nil {
		s.groupVersion = groupVersionHash(id)
	}
}

func groupVersionHash(id *resourcepb.ID) [8]byte {
	sum := sha256.Sum256([]byte(id.GetType().GetGroupVersion()))
	return [8]byte(sum[:8])
}

func (s *versionRing) hasOwner() bool { return s.owner != [16]byte{} }

// bytes returns the stored form.
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

// version returns the text form, which callers see.
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

// parseVersion is the inverse of version. Any other text is a version that no resource has.
func parseVersion(text string) (*versionRing, bool) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return nil, false
	}
	s, ok := parseRing(b)
	if !ok || s.count == 0 || s.parts > maxParts || s.version() != text { // the decoder ignores line breaks
		return nil, false
	}
	return s, true
}

// The first byte of stored data is its codec.
const (
	codecPlain = 0
	codecZstd  = 1
)

const (
	// compressFrom is the minimum size for compression.
	compressFrom = 1 << 10
	// defaultPartSize is the size limit of the data in an item: a resource's, or a part's. DynamoDB limits an item, including keys and
	// attribute names, to 400 KB.
	defaultPartSize = 384 << 10
	// maxInflatedSize bounds the decompression of a damaged item.
	maxInflatedSize = driver.MaxSize + 64<<10
	// maxParts is an upper bound for the parts of the largest resource.
	maxParts = (maxInflatedSize + defaultPartSize - 1) / defaultPartSize
)

var codecs = sync.OnceValue(func() (c struct {
	enc *zstd.Encoder
	dec *zstd.Decoder
}) {
	// These constructors fail only on invalid options.
	c.enc, _ = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedDefault), zstd.WithEncoderConcurrency(2))
	c.dec, _ = zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(maxInflatedSize))
	return c
})

// pack returns the stored form of an encoded resource, compressed if that is smaller.
func pack(data []byte) []byte {
	if len(data) >= compressFrom {
		packed := codecs().enc.EncodeAll(data, append(make([]byte, 0, len(data)/2), codecZstd))
		if len(packed) < len(data)-len(data)/16 {
			return packed
		}
	}
	return append([]byte{codecPlain}, data...)
}

// unpack is the inverse of pack.
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
	return nil, fmt.Errorf("stored data has codec %d, which this program does not support", packed[0])
}

// split divides packed data into parts of a size, if it is larger, and the rest for the item itself.
func split(packed []byte, size int) (parts [][]byte, rest []byte) {
	for len(packed) > size {
		parts, packed = append(parts, packed[:size]), packed[size:]
	}
	return parts, packed
}

// headItem is a decoded item of the resource class: a resource, whose data may be in parts, or a tombstone.
type headItem struct {
	key        key.Key
	ring       *versionRing
	live       bool
	uid        string
	packedData []byte // empty for tombstones; if there are parts, the data after them
	damage     error  // nothing but the key can be decoded; ring is nil then
}

// head decodes an item. The error is a *storage.DamagedError if the key is readable.
func (l layout) head(it item) (*headItem, error) {
	k, err := l.keyOf(it)
	if err != nil {
		return nil, err
	}
	uid := it.bytes(attrUid)
	s, ok := parseRing(it.bytes(attrVersion))
	if !ok || s.parts > maxParts {
		return nil, codec.DamageError(k, string(uid), "", it.bytes(attrData), errors.New("the item has no readable version"))
	}
	return &headItem{key: k, ring: s, live: uid != nil, uid: string(uid), packedData: it.bytes(attrData)}, nil
}

// damageError returns the error for damaged data of the head's resource.
func (h *headItem) damageError(data []byte, err error) error {
	return codec.DamageError(h.key, h.uid, h.ring.version(), data, err)
}

// decode returns the resource of a head and its packed data.
func (h *headItem) decode(packed []byte) (*resourcepb.Resource, error) {
	data, err := unpack(packed)
	if err != nil {
		return nil, h.damageError(packed, err)
	}
	return h.decodeUnpacked(data)
}

// decodeUnpacked decodes decompressed data.
func (h *headItem) decodeUnpacked(data []byte) (*resourcepb.Resource, error) {
	res, err := codec.DecodeOf(h.key, data, h.ring.version())
	var damaged *storage.DamagedError
	switch {
	case errors.As(err, &damaged):
		return nil, h.damageError(data, damaged.Err)
	case err == nil && res.GetId().GetUid() != h.uid:
		return nil, h.damageError(data, fmt.Errorf("the resource has the uid %q", res.GetId().GetUid()))
	}
	return res, err
}

// decisionState returns the input of the decision tables for a head.
func (h *headItem) decisionState() driver.Stored {
	if h == nil || !h.live {
		return driver.Stored{}
	}
	return driver.Stored{Exists: true, Uid: h.uid, Version: h.ring.version()}
}
