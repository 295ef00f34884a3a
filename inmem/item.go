package inmem

import (
	"bytes"
	"sync/atomic"

	"github.com/tidwall/btree"

	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// item is the state of a key after one change. All fields except before and hasSuccessor are immutable.
type item struct {
	key      key.Key
	resource *resourcepb.Resource // nil for a deletion
	size     int

	at                       position // after this change
	revision, createRevision int64    // of this change and of the creation
	writes                   int64

	// before is the previous item of the key, possibly a deletion. It is nil for the first change and when history no
	// longer holds the previous item.
	before       atomic.Pointer[item]
	hasSuccessor bool // there is a later change; guarded by the store's lock
}

func (i *item) isDeletion() bool { return i.resource == nil }

func (i *item) decisionState() driver.Stored {
	if i == nil {
		return driver.Stored{}
	}
	return driver.Stored{Exists: true, Uid: i.resource.Id.Uid, Version: i.resource.Version}
}

func byKey(a, b *item) bool { return a.key.Before(&b.key) }

// owner identifies an owner in the index of owner references.
type owner struct {
	key key.Key
	uid string
}

// position is the number of changes made so far. The position after a transaction is the revision of its changes.
type position = uint64

// weight is the memory that an item takes when only history refers to it.
func (i *item) weight() int { return i.size + eventOverhead }

// stateAt returns the item stored at a position, or nil if the key did not exist then. History must hold the position.
func (i *item) stateAt(at position) *item {
	for ; i != nil && i.at > at; i = i.before.Load() {
		continue
	}
	if i == nil || i.isDeletion() {
		return nil
	}
	return i
}

func (i *item) version() *driver.Version { return i.versionIn(&driver.Version{}) }

// versionIn is version in the memory of another version, which is replaced.
func (i *item) versionIn(v *driver.Version) *driver.Version {
	*v = driver.Version{
		Key: i.key.Append(v.Key[:0]), Version: append(v.Version[:0], i.resource.Version...), Resource: i.resource,
		CreateRevision: i.createRevision, ModRevision: i.revision, Writes: i.writes,
	}
	return v
}

// ascend calls visit with the matches, in order, until visit returns false.
func ascend(tree *btree.BTreeG[*item], filter *key.Filter, visit func(*item) bool) {
	if from, ok := filter.Seek(nil); ok {
		visitItems(tree, filter, lowestKey(from), nil, func(it *item) bool { return it.isDeletion() || visit(it) })
	}
}

// maxMismatches is the number of consecutive mismatches before visitItems seeks. A seek costs about as much.
const maxMismatches = 8

// visitItems calls visit with the items from a key on, including deletions, until visit returns false or a key reaches
// to. A nil filter matches all items. In a run of mismatches it reads only the first few and then seeks. It returns
// the number of items read.
func visitItems(tree *btree.BTreeG[*item], filter *key.Filter, from key.Key, to *key.Key, visit func(*item) bool) (readCount int) {
	for again := true; again; {
		again = false
		mismatches := 0
		tree.Ascend(&item{key: from}, func(it *item) bool {
			readCount++
			switch {
			case to != nil && it.key.Compare(*to) >= 0:
				return false
			case filter == nil || filter.Match(&it.key):
				mismatches = 0
				return visit(it)
			}
			if mismatches++; mismatches < maxMismatches {
				return true
			}
			var next []byte
			if next, again = filter.Seek(it.key.Bytes()); again {
				from = lowestKey(next)
			}
			return false
		})
	}
	return readCount
}

// lowestKey returns the lowest key whose encoding is not below b.
func lowestKey(b []byte) (k key.Key) {
	parts := bytes.SplitN(b, []byte{0}, 5)
	for i, to := range []*string{&k.Group, &k.Kind, &k.Partition, &k.Namespace, &k.Name}[:len(parts)] {
		*to = string(parts[i])
	}
	return k
}

// eventOverhead is an upper estimate of the memory of a change beside its resource's bytes: the surrounding messages, the
// key and the event. A measurement with a resource of few fields gave about 530 bytes.
const eventOverhead = 640

func weight(ev *driver.Event[position]) int { return ev.Size + eventOverhead }
