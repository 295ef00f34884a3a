package inmem

import (
	"bytes"
	"sync/atomic"

	"github.com/tidwall/btree"

	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// item is what was stored under a key by one change. All but before and superseded is immutable.
type item struct {
	key      key.Key
	resource *resourcepb.Resource // nil: the change was a deletion
	size     int

	at, createPosition position // positions of this change and of the creation
	writes             int64

	// before is what was stored until then, a deletion included; nil where nothing was, or where history does not reach back so far.
	before       atomic.Pointer[item]
	hasSuccessor bool // by a later change; the store's lock guards it
}

func (i *item) isDeletion() bool { return i.resource == nil }

func (i *item) decisionState() driver.Stored {
	if i == nil {
		return driver.Stored{}
	}
	return driver.Stored{Exists: true, Uid: i.resource.Id.Uid, Version: i.resource.Version}
}

func byKey(a, b *item) bool { return a.key.Before(&b.key) }

// owner is what a reference to an owner matches by.
type owner struct {
	key key.Key
	uid string
}

// position is the number of changes made so far.
type position = uint64

// weight is what an item takes that history alone holds.
func (i *item) weight() int { return i.size + eventOverhead }

// stateAt returns what was stored at a position, nil for nothing. History reaches back to there.
func (i *item) stateAt(at position) *item {
	for ; i != nil && i.at > at; i = i.before.Load() {
		continue
	}
	if i == nil || i.isDeletion() {
		return nil
	}
	return i
}

func (i *item) version() *driver.Version {
	return &driver.Version{
		Key: i.key.Bytes(), Version: []byte(i.resource.Version), Resource: i.resource,
		CreateRevision: int64(i.createPosition), ModRevision: int64(i.at), Writes: i.writes,
	}
}

// ascend calls visit with every match after the key, or from the first one, in order, until visit returns false.
func ascend(tree *btree.BTreeG[*item], filter *key.Filter, after *key.Key, visit func(*item) bool) {
	from, ok := filter.Seek(nil)
	if !ok {
		return
	}
	first := lowestKey(from)
	if after != nil && after.Compare(first) > 0 {
		first = *after
	}
	visitItems(tree, filter, first, nil, func(it *item) bool {
		return it.isDeletion() || after != nil && it.key == *after || visit(it)
	})
}

// maxMismatches is how many items a walk looks at before it seeks: a seek costs about as much.
const maxMismatches = 8

// visitItems calls visit with every item from a key on, deletions too, until visit returns false or a key is not below to. A filter that is
// not nil leaves out items; of a run of those only the first few are looked at. It returns how many items it has looked at.
func visitItems(tree *btree.BTreeG[*item], filter *key.Filter, from key.Key, to *key.Key, visit func(*item) bool) (looked int) {
	for again := true; again; {
		again = false
		passed := 0
		tree.Ascend(&item{key: from}, func(it *item) bool {
			looked++
			switch {
			case to != nil && it.key.Compare(*to) >= 0:
				return false
			case filter == nil || filter.Match(&it.key):
				passed = 0
				return visit(it)
			}
			if passed++; passed < maxMismatches {
				return true
			}
			var next []byte
			if next, again = filter.Seek(it.key.Bytes()); again {
				from = lowestKey(next)
			}
			return false
		})
	}
	return looked
}

// lowestKey returns the lowest key whose bytes are not before these.
func lowestKey(b []byte) (k key.Key) {
	parts := bytes.SplitN(b, []byte{0}, 5)
	for i, to := range []*string{&k.Group, &k.Kind, &k.Partition, &k.Namespace, &k.Name}[:len(parts)] {
		*to = string(parts[i])
	}
	return k
}

// eventOverhead is what a change takes in memory beside the bytes of its resource: the messages around them, the key, the event.
// Measured with a resource of few fields: about 530 bytes.
const eventOverhead = 640

func weight(ev *driver.Event[position]) int { return ev.Size + eventOverhead }
