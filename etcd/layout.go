package etcd

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/resourcepb"
)

// layout knows where things are under a prefix. The NUL behind the prefix, which no prefix may hold, keeps stores apart whose
// prefixes nest: "a/" 0 is the beginning of no key of the store "a/b".
type layout struct {
	resources []byte // what the keys of resources begin with
	edges     []byte // what the keys of owner edges begin with
	meta      []byte
	store     driver.StoreID
}

func newLayout(prefix string) layout {
	section := func(s string) []byte { return []byte(prefix + "/\x00" + s) }
	return layout{resources: section("r"), edges: section("o"), meta: section("m")}
}

func (l *layout) storeKey() string          { return string(l.meta) + "store" }
func (l *layout) fenceKey(slot byte) string { return fmt.Sprintf("%sfence%02x", l.meta, slot) }

// receiptKey is where transactions of nothing but deletes leave their token.
func (l *layout) receiptKey(slot byte) string { return fmt.Sprintf("%sreceipt%02x", l.meta, slot) }

// resource returns the etcd key of a resource.
func (l *layout) resource(k key.Key) []byte {
	return k.Append(append(make([]byte, 0, len(l.resources)+64), l.resources...))
}

// parse undoes resource.
func (l *layout) parse(etcdKey []byte) (key.Key, error) {
	rest, ok := bytes.CutPrefix(etcdKey, l.resources)
	if !ok {
		return key.Key{}, errors.New("a key outside of the store")
	}
	return key.Parse(rest)
}

// edge is what an owned resource's edge depends on: the owner, by a hash that makes all edges of one owner neighbours and
// bounds the length of the key, and the group version, which is part of the edge's value.
type edge struct {
	owner        [16]byte
	groupVersion [8]byte
}

// edgeOf returns the edge of res, nil where it has no owner.
func edgeOf(res *resourcepb.Resource) *edge {
	if res.GetOwner() == nil {
		return nil
	}
	gv := sha256.Sum256([]byte(res.GetId().GetType().GetGroupVersion()))
	return &edge{owner: ownerHash(key.Of(res.GetOwner()), res.GetOwner().GetUid()), groupVersion: [8]byte(gv[:8])}
}

func ownerHash(owner key.Key, uid string) [16]byte {
	b := owner.Append(nil)
	b = append(b, 0)
	sum := sha256.Sum256(append(b, uid...))
	return [16]byte(sum[:16])
}

// edgesOf returns what the keys of an owner's edges begin with.
func (l *layout) edgesOf(owner [16]byte) []byte {
	return append(append(make([]byte, 0, len(l.edges)+16+64), l.edges...), owner[:]...)
}

func (l *layout) edgeKey(owner [16]byte, child key.Key) []byte {
	return child.Append(l.edgesOf(owner))
}

// longGroupVersion is the size from which a group version is left out of the edge, and looked up in the child: an edge must
// stay small whatever it points to.
const longGroupVersion = 1024

// edgeValue is the child's uid and group version.
func edgeValue(child *resourcepb.ID) []byte {
	gv := child.GetType().GetGroupVersion()
	b := []byte{1}
	if len(gv) > longGroupVersion {
		b[0], gv = 2, ""
	}
	b = append(b, child.GetUid()...)
	b = append(b, 0)
	return append(b, gv...)
}

// parseEdge returns the child that an edge points to, and whether its group version must be looked up.
func (l *layout) parseEdge(kv *mvccpb.KeyValue) (id *resourcepb.ID, lookUp bool, err error) {
	if len(kv.Key) < len(l.edges)+16 || len(kv.Value) < 2 || kv.Value[0] > 2 {
		return nil, false, errors.New("a stored owner edge is malformed")
	}
	child, err := key.Parse(kv.Key[len(l.edges)+16:])
	if err != nil {
		return nil, false, err
	}
	uid, gv, _ := bytes.Cut(kv.Value[1:], []byte{0})
	return child.ID(string(uid), string(gv)), kv.Value[0] == 2, nil
}

// token tells one write from all others.
type token [16]byte

// valueFormat is the first byte of a resource's value; the token and the encoded message follow.
const (
	valueFormat = 1
	valueHeader = 1 + len(token{})
)

func appendHeader(b []byte, t token) []byte { return append(append(b, valueFormat), t[:]...) }

// tokenOf returns the token of a resource's value; the zero token where there is none.
func tokenOf(value []byte) token {
	if len(value) < valueHeader || value[0] != valueFormat {
		return token{}
	}
	return token(value[1:valueHeader])
}

// decode returns the key and the resource, with its version, that a key-value pair holds. It knows the key also where the error is
// a *storage.DamagedError.
func (l *layout) decode(kv *mvccpb.KeyValue) (key.Key, *resourcepb.Resource, error) {
	k, err := l.parse(kv.Key)
	if err != nil {
		return k, nil, err
	}
	res, err := l.decodeValue(k, kv)
	return k, res, err
}

// decodeValue is decode where the key is known. Nobody knows the uid of what is damaged, so its version is made with none: that
// goes with any uid, for a deletion with the empty one.
func (l *layout) decodeValue(k key.Key, kv *mvccpb.KeyValue) (*resourcepb.Resource, error) {
	damaged := func() string { return l.version(k, "", base{rev: kv.ModRevision}) }
	if len(kv.Value) < valueHeader || kv.Value[0] != valueFormat {
		return nil, codec.DamageError(k, "", damaged(), errors.New("the value is in no format that this program knows"))
	}
	res, err := codec.AdoptOf(k, kv.Value[valueHeader:], "")
	var cause *storage.DamagedError
	if errors.As(err, &cause) {
		cause.Version = damaged()
	}
	if err != nil {
		return nil, err
	}
	res.Version = l.version(k, res.GetId().GetUid(), base{rev: kv.ModRevision, edge: edgeOf(res)})
	return res, nil
}

// base is the state that a write was made from: a mod revision, 0 for nothing stored, and the edge that belongs to it.
type base struct {
	rev  int64
	edge *edge
}

const (
	shortVersion = 8 + 8
	longVersion  = 8 + 16 + 8 + 8
)

// version returns the text of a state. It carries the edge, so that the next write can remove it without a read, and a
// checksum over store, key and uid too, so that a text which was not made for exactly this state does not parse. A comparison
// of the mod revision in the server is then enough: the revision fixes the rest.
func (l *layout) version(k key.Key, uid string, at base) string {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, longVersion), uint64(at.rev))
	if at.edge != nil {
		b = append(b, at.edge.owner[:]...)
		b = append(b, at.edge.groupVersion[:]...)
	}
	sum := l.checksum(k, uid, b)
	return base64.RawURLEncoding.EncodeToString(append(b, sum[:]...))
}

// parseVersion undoes version. Any text is legal; false means that it matches nothing that is stored under k with uid.
func (l *layout) parseVersion(k key.Key, uid, version string) (base, bool) {
	size := shortVersion
	if len(version) != base64.RawURLEncoding.EncodedLen(size) {
		size = longVersion
	}
	// The decoder skips line breaks; both lengths together prove that there are none.
	b, err := base64.RawURLEncoding.Strict().DecodeString(version)
	if err != nil || len(b) != size || len(version) != base64.RawURLEncoding.EncodedLen(size) {
		return base{}, false
	}
	body, given := b[:len(b)-8], [8]byte(b[len(b)-8:])
	if given != l.checksum(k, uid, body) && given != l.checksum(k, "", body) {
		return base{}, false
	}
	at := base{rev: int64(binary.BigEndian.Uint64(body))}
	if len(b) == longVersion {
		at.edge = &edge{owner: [16]byte(body[8:]), groupVersion: [8]byte(body[24:])}
	}
	return at, at.rev > 0
}

func (l *layout) checksum(k key.Key, uid string, body []byte) [8]byte {
	b := make([]byte, 0, 256)
	b = append(b, l.store[:]...)
	b = append(b, body...)
	b = append(b, uid...)
	b = append(b, 0)
	sum := sha256.Sum256(k.Append(b))
	return [8]byte(sum[:8])
}

// within returns where a resource lies whose key has these bytes.
func (l *layout) within(keyBytes []byte) []byte {
	return append(append(make([]byte, 0, len(l.resources)+len(keyBytes)+1), l.resources...), keyBytes...)
}

// keyRange is the range of etcd keys in which all matches of a filter lie; nil matches all.
func (l *layout) keyRange(f *key.Filter) (from, to []byte) {
	if f == nil {
		f = &key.Filter{Group: storage.Wildcard, Kind: storage.Wildcard, Partition: storage.Wildcard, Namespace: storage.Wildcard}
	}
	prefix, _ := f.Prefix()
	from = l.within(prefix)
	return from, key.PrefixEnd(from)
}

// The key that says where the store has moved to. Every transaction that changes resources compares its absence.
func (l *layout) movedKey() string { return string(l.meta) + "moved" }

// The key that is written whenever the store is closed or opened, and never deleted. Its mod revision is the fence's epoch.
// Closing and opening compare it, so that a request which arrives late, after its answer was given up, changes nothing.
func (l *layout) epochKey() string { return string(l.meta) + "epoch" }

// open compares that the store takes writes.
func (l *layout) open() *pb.Compare { return compareRevision([]byte(l.movedKey()), 0) }

func (l *layout) getMoved() *pb.RequestOp { return opGet([]byte(l.movedKey())) }

func (l *layout) noteKey(name string) string { return string(l.meta) + "journal/" + name }

// maxOpsEach is the most operations of one mutation: the resource, the old edge, the new edge. The server counts the widest
// nested transaction against the limit of the outer one.
const maxOpsEach = 3

// position is a place in the store's history: a revision, and within it, since a transaction changes several keys at one
// revision, the last key that is included.
type position struct {
	rev int64
	key string // endKey: the whole revision
}

// endKey is after every key, since no key begins with a byte that is not UTF-8.
const endKey = "\xff"

func endOf(rev int64) position { return position{rev, endKey} }

func (p position) less(o position) bool {
	return p.rev < o.rev || p.rev == o.rev && p.key < o.key
}
