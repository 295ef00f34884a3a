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

// layout encodes the keys and values of a store under a prefix. A NUL follows the prefix, and no prefix may contain one. So stores with
// nested prefixes stay apart: no key of the store "a/b" begins with "a/" 0.
type layout struct {
	resources []byte // prefix of the keys of resources
	entries   []byte // prefix of the keys of owner entries
	meta      []byte // prefix of all other keys
	store     driver.StoreID
}

func newLayout(prefix string) layout {
	section := func(s string) []byte { return []byte(prefix + "/\x00" + s) }
	return layout{resources: section("r"), entries: section("o"), meta: section("m")}
}

func (l *layout) storeKey() string               { return string(l.meta) + "store" }
func (l *layout) revocationKey(slot byte) string { return fmt.Sprintf("%sfence%02x", l.meta, slot) }

// receiptKey returns the key that holds the token of a transaction that consists only of deletes.
func (l *layout) receiptKey(slot byte) string { return fmt.Sprintf("%sreceipt%02x", l.meta, slot) }

// resource returns the etcd key of a resource.
func (l *layout) resource(k key.Key) []byte {
	return k.Append(append(make([]byte, 0, len(l.resources)+64), l.resources...))
}

// parse is the inverse of resource.
func (l *layout) parse(etcdKey []byte) (key.Key, error) {
	rest, ok := bytes.CutPrefix(etcdKey, l.resources)
	if !ok {
		return key.Key{}, errors.New("the key is not in this store")
	}
	return key.Parse(rest)
}

// ownerEntry identifies the owner entry of a resource. The owner is a hash, so all entries of an owner are adjacent and the length of
// the key is bounded. The group version is part of the entry's value.
type ownerEntry struct {
	owner        [16]byte
	groupVersion [8]byte
}

// entryOf returns the owner entry of res, or nil if res has no owner.
func entryOf(res *resourcepb.Resource) *ownerEntry {
	if res.GetOwner() == nil {
		return nil
	}
	gv := sha256.Sum256([]byte(res.GetId().GetType().GetGroupVersion()))
	return &ownerEntry{owner: ownerHash(key.Of(res.GetOwner()), res.GetOwner().GetUid()), groupVersion: [8]byte(gv[:8])}
}

func ownerHash(owner key.Key, uid string) [16]byte {
	b := owner.Append(nil)
	b = append(b, 0)
	sum := sha256.Sum256(append(b, uid...))
	return [16]byte(sum[:16])
}

// entriesOf returns the prefix of the keys of an owner's entries.
func (l *layout) entriesOf(owner [16]byte) []byte {
	return append(append(make([]byte, 0, len(l.entries)+16+64), l.entries...), owner[:]...)
}

func (l *layout) entryKey(owner [16]byte, child key.Key) []byte {
	return child.Append(l.entriesOf(owner))
}

// longGroupVersion is the maximum size of a group version inside an owner entry. A longer one is read from the child, because entries
// must stay small.
const longGroupVersion = 1024

// entryValue returns the value of a child's owner entry: its uid and group version.
func entryValue(child *resourcepb.ID) []byte {
	gv := child.GetType().GetGroupVersion()
	b := []byte{1}
	if len(gv) > longGroupVersion {
		b[0], gv = 2, ""
	}
	b = append(b, child.GetUid()...)
	b = append(b, 0)
	return append(b, gv...)
}

// parseEntry returns the child of an owner entry. readVersion reports whether its group version must be read from the child.
func (l *layout) parseEntry(kv *mvccpb.KeyValue) (id *resourcepb.ID, readVersion bool, err error) {
	child, err := l.childOf(kv.Key)
	if err != nil {
		return nil, false, err
	}
	if len(kv.Value) < 2 || kv.Value[0] > 2 {
		return nil, false, errMalformedEntry
	}
	uid, gv, _ := bytes.Cut(kv.Value[1:], []byte{0})
	return child.ID(string(uid), string(gv)), kv.Value[0] == 2, nil
}

var errMalformedEntry = errors.New("a stored owner entry is malformed")

// childOf returns the child in the key of an owner entry.
func (l *layout) childOf(entryKey []byte) (key.Key, error) {
	if len(entryKey) < len(l.entries)+16 {
		return key.Key{}, errMalformedEntry
	}
	return key.Parse(entryKey[len(l.entries)+16:])
}

// token identifies one write.
type token [16]byte

// valueFormat is the first byte of a resource's value. The token and the encoded message follow.
const (
	valueFormat = 1
	valueHeader = 1 + len(token{})
)

func appendHeader(b []byte, t token) []byte { return append(append(b, valueFormat), t[:]...) }

// tokenOf returns the token of a resource's value, or the zero token if it has none.
func tokenOf(value []byte) token {
	if len(value) < valueHeader || value[0] != valueFormat {
		return token{}
	}
	return token(value[1:valueHeader])
}

// decode returns the key and the resource of a key-value pair. It sets the resource's version. The key is valid also if the error is a
// *storage.DamagedError.
func (l *layout) decode(kv *mvccpb.KeyValue) (key.Key, *resourcepb.Resource, error) {
	k, err := l.parse(kv.Key)
	if err != nil {
		return k, nil, err
	}
	res, err := l.decodeValue(k, kv)
	return k, res, err
}

// decodeValue is decode for a known key. The uid of a damaged resource is unknown, so its version is made without a uid. Such a version
// matches every uid, including the empty one of a deletion.
func (l *layout) decodeValue(k key.Key, kv *mvccpb.KeyValue) (*resourcepb.Resource, error) {
	damaged := func() string { return l.version(k, "", base{rev: kv.ModRevision}) }
	if len(kv.Value) < valueHeader || kv.Value[0] != valueFormat {
		return nil, codec.DamageError(k, "", damaged(), kv.Value, errors.New("the format of the value is unknown to this program"))
	}
	res, err := codec.AdoptOf(k, kv.Value[valueHeader:], "")
	var cause *storage.DamagedError
	if errors.As(err, &cause) {
		cause.Version, cause.Data = damaged(), kv.Value
	}
	if err != nil {
		return nil, err
	}
	res.Version = l.version(k, res.GetId().GetUid(), base{rev: kv.ModRevision, entry: entryOf(res)})
	return res, nil
}

// base is the stored state that a write replaces.
type base struct {
	rev   int64       // the mod revision; 0 if nothing is stored
	entry *ownerEntry // nil if the resource has no owner
}

const (
	shortVersion = 8 + 8
	longVersion  = 8 + 16 + 8 + 8
)

// version returns the version text of a state. It contains the owner entry, so the next write can remove that without a read, and a
// checksum over store, key and uid, so a text made for another state does not parse. The server then needs to compare only the mod
// revision, which determines the rest.
func (l *layout) version(k key.Key, uid string, at base) string {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, longVersion), uint64(at.rev))
	if at.entry != nil {
		b = append(b, at.entry.owner[:]...)
		b = append(b, at.entry.groupVersion[:]...)
	}
	sum := l.checksum(k, uid, b)
	return base64.RawURLEncoding.EncodeToString(append(b, sum[:]...))
}

// parseVersion is the inverse of version. Any text is legal. It returns false if no resource under k with this uid can have the version.
func (l *layout) parseVersion(k key.Key, uid, version string) (base, bool) {
	size := shortVersion
	if len(version) != base64.RawURLEncoding.EncodedLen(size) {
		size = longVersion
	}
	// The decoder skips line breaks. Both lengths are right only if there are none.
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
		at.entry = &ownerEntry{owner: [16]byte(body[8:]), groupVersion: [8]byte(body[24:])}
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

// within returns the etcd key of the resource with these key bytes.
func (l *layout) within(keyBytes []byte) []byte {
	return append(append(make([]byte, 0, len(l.resources)+len(keyBytes)+1), l.resources...), keyBytes...)
}

// keyRange returns a range of etcd keys that contains all matches of a filter. A nil filter matches all resources.
func (l *layout) keyRange(f *key.Filter) (from, to []byte) {
	if f == nil {
		f = &key.Filter{Group: storage.Wildcard, Kind: storage.Wildcard, Partition: storage.Wildcard, Namespace: storage.Wildcard}
	}
	prefix, _ := f.Prefix()
	from = l.within(prefix)
	return from, key.PrefixEnd(from)
}

// fenceKey holds the driver.Fence of a closed store. A transaction that changes resources succeeds only if fenceKey does
// not exist, or has the revision at which it admits the guard of the transaction. Strong reads get its value in the same transaction.
func (l *layout) fenceKey() string { return string(l.meta) + "moved" }

// epochKey is written whenever the fence is set or removed, and never deleted. Its mod revision is the epoch of the fence. Each change of
// the fence compares it, so a request that arrives after its caller stopped waiting changes nothing.
func (l *layout) epochKey() string { return string(l.meta) + "epoch" }

// fenceAt returns the comparison that the fence has a revision; 0: the store is open.
func (l *layout) fenceAt(rev int64) *pb.Compare { return compareRevision([]byte(l.fenceKey()), rev) }

func (l *layout) getFence() *pb.RequestOp { return opGet([]byte(l.fenceKey())) }

func (l *layout) noteKey(name string) string { return string(l.meta) + "journal/" + name }

// maxOpsEach is the maximum number of operations of one mutation: the resource, the old owner entry, the new owner entry. The server
// counts the largest nested transaction against the limit of the outer one.
const maxOpsEach = 3

// position is a position in the history of the store. A transaction changes several keys at one revision, so a position may lie inside a
// revision.
type position struct {
	rev int64
	key string // the last key included; endKey: all of the revision
}

// endKey is greater than every key, since keys are UTF-8.
const endKey = "\xff"

func endOf(rev int64) position { return position{rev, endKey} }

func (p position) less(o position) bool {
	return p.rev < o.rev || p.rev == o.rev && p.key < o.key
}
