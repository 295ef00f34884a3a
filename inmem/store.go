package inmem

import (
	"crypto/rand"
	"encoding/hex"
	"strconv"
	"sync"

	"github.com/tidwall/btree"

	"github.com/ashlar-dev/storage/internal/cas"
	"github.com/ashlar-dev/storage/internal/cursor"
	"github.com/ashlar-dev/storage/internal/feed"
	"github.com/ashlar-dev/storage/internal/key"
	"github.com/ashlar-dev/storage/internal/message"
	"github.com/ashlar-dev/storage/resourcepb"
)

// item is what is stored under a key. It is immutable.
type item struct {
	key      key.Key
	resource *resourcepb.Resource
}

func (i *item) stored() cas.Stored {
	if i == nil {
		return cas.Stored{}
	}
	return cas.Stored{Exists: true, Uid: i.resource.Id.Uid, Version: i.resource.Version}
}

func byKey(a, b *item) bool { return a.key.Compare(b.key) < 0 }

// owner is what a reference to an owner matches by.
type owner struct {
	key key.Key
	uid string
}

// position is the number of changes made so far.
type position = uint64

// The most of a store's history, whatever the number of changes, in bytes.
const historyBytes = 256 << 20

// defaultHistory is the number of changes kept where nobody says otherwise.
const defaultHistory = 100_000

// store holds the data that handles share.
type store struct {
	mu sync.RWMutex

	id    cursor.StoreID
	epoch string // a random part of every version, renewed by a restore

	items map[key.Key]*item    // for reads
	tree  *btree.BTreeG[*item] // for lists: its copies cost nothing, and each is a snapshot
	owned map[owner]map[key.Key]struct{}

	at         position
	history    []*feed.Event[position] // those after from
	from       position
	bytes      int
	maxHistory int

	changed chan struct{} // closed by the next change; nil while nobody waits
	restore chan struct{} // closed by a restore

	fence *string         // where the store has moved to, if it has
	notes map[string]note // the journal of the tool that moves data
	noted uint64          // notes written so far
}

func newStore() *store {
	s := &store{maxHistory: defaultHistory}
	s.reset()
	return s
}

// reset empties the store and gives it a new identity.
func (s *store) reset() {
	var random [24]byte
	_, _ = rand.Read(random[:]) // never fails
	s.id = cursor.StoreID(random[:16])
	s.epoch = "-" + hex.EncodeToString(random[16:])
	s.items = make(map[key.Key]*item)
	s.tree = btree.NewBTreeGOptions(byKey, btree.Options{NoLocks: true})
	s.owned = make(map[owner]map[key.Key]struct{})
	s.history, s.bytes, s.from = nil, 0, s.at
	s.restore = make(chan struct{})
}

func (s *store) storeID() cursor.StoreID {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.id
}

func (s *store) keepHistory(changes int) {
	if changes <= 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.maxHistory = changes
	s.trim()
}

func (s *store) get(k key.Key) *item {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.items[k]
}

// snapshot returns the items as they are now, and where that is. The tree is for the caller alone.
func (s *store) snapshot() (*btree.BTreeG[*item], position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tree.Copy(), s.at
}

// put stores a resource that nobody else holds, under a new version. The caller holds the lock.
func (s *store) put(k key.Key, res *resourcepb.Resource, size int) *item {
	s.at++
	res.Version = strconv.FormatUint(s.at, 36) + s.epoch
	it := &item{k, res}
	s.unlink(s.items[k])
	s.place(it)
	s.record(&feed.Event[position]{Key: k, Resource: res, Size: size, At: s.at})
	return it
}

// place makes it part of the data, without a change in history.
func (s *store) place(it *item) {
	s.items[it.key] = it
	s.tree.Set(it)
	if o := it.resource.Owner; o != nil {
		ref := owner{key.Of(o), o.Uid}
		children := s.owned[ref]
		if children == nil {
			children = make(map[key.Key]struct{})
			s.owned[ref] = children
		}
		children[it.key] = struct{}{}
	}
}

// remove deletes what is stored under a key. The caller holds the lock.
func (s *store) remove(it *item) {
	s.at++
	s.unlink(it)
	delete(s.items, it.key)
	s.tree.Delete(it)
	s.record(&feed.Event[position]{Key: it.key, Delete: true, Resource: it.resource, Size: message.Size(it.resource), At: s.at})
}

// unlink removes the reference of a child to its owner.
func (s *store) unlink(it *item) {
	if it == nil || it.resource.Owner == nil {
		return
	}
	ref := owner{key.Of(it.resource.Owner), it.resource.Owner.Uid}
	delete(s.owned[ref], it.key)
	if len(s.owned[ref]) == 0 {
		delete(s.owned, ref)
	}
}

func (s *store) record(ev *feed.Event[position]) {
	s.history = append(s.history, ev)
	s.bytes += ev.Size
	s.trim()
}

// trim drops the oldest changes. It moves the rest only once in a while, so that a change costs the same however many are kept.
func (s *store) trim() {
	drop := 0
	for len(s.history)-drop > s.maxHistory || s.bytes > historyBytes {
		s.bytes -= s.history[drop].Size
		s.history[drop] = nil
		drop++
	}
	s.history = s.history[drop:]
	s.from += position(drop)
}

// announce wakes the feeds. The caller holds the lock and has made all changes of a transaction.
func (s *store) announce() {
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// waiter returns a channel that the next change closes. The caller holds the lock.
func (s *store) waiter() <-chan struct{} {
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return s.changed
}
