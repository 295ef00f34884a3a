package inmem

import (
	"crypto/rand"
	"encoding/hex"
	"strconv"
	"sync"

	"github.com/tidwall/btree"

	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/internal/cursor"
	"github.com/ashlar-dev/storage/resourcepb"
)

// item is what is stored under a key. It is immutable.
type item struct {
	key      key.Key
	resource *resourcepb.Resource
}

func (i *item) stored() driver.Stored {
	if i == nil {
		return driver.Stored{}
	}
	return driver.Stored{Exists: true, Uid: i.resource.Id.Uid, Version: i.resource.Version}
}

func byKey(a, b *item) bool { return a.key.Compare(b.key) < 0 }

// owner is what a reference to an owner matches by.
type owner struct {
	key key.Key
	uid string
}

// position is the number of changes made so far.
type position = uint64

// store holds the data that handles share.
type store struct {
	mu sync.RWMutex

	id    cursor.StoreID
	epoch string // a random part of every version, renewed by a restore

	items map[key.Key]*item    // for reads
	tree  *btree.BTreeG[*item] // for lists: its copies cost nothing, and each is a snapshot
	owned map[owner]map[key.Key]struct{}

	at      position
	joint   int64 // what the changes of the transaction under way have in common; 0 for a single change
	history history

	changed chan struct{} // closed by the next change; nil while nobody waits
	restore chan struct{} // closed by a restore

	fence *string         // where the store has moved to, if it has
	notes map[string]note // the journal of the tool that moves data
	noted uint64          // notes written so far
}

func newStore() *store {
	s := &store{}
	s.history = history{maxEvents: defaultHistory, maxBytes: defaultHistoryBytes, room: sync.Cond{L: &s.mu}}
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
	s.history.begin(s.at)
	s.restore = make(chan struct{})
}

func (s *store) keepHistory(changes, bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history.bound(changes, bytes)
}

// lockForWriting takes the lock, once there is room in the history for what is going to be written.
func (s *store) lockForWriting() {
	s.mu.Lock()
	s.history.await()
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
	s.history.record(&driver.Event[position]{Key: k, Resource: res, Size: size, At: s.at, Commit: s.joint})
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
	s.history.record(&driver.Event[position]{
		Key: it.key, Delete: true, Resource: it.resource, Size: codec.Size(it.resource), At: s.at, Commit: s.joint,
	})
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
