package dynamodb

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/ashlar-dev/storage/driver/key"
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
	attrStamp   = "v"   // resources and tombstones: see stamp
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

func (l layout) registered(group, kind string) item {
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
