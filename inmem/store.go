package inmem

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strconv"
	"sync"

	"github.com/tidwall/btree"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/cursor"
	"github.com/ashlar-dev/storage/resourcepb"
)

// store holds the data that handles share.
type store struct {
	isShared bool // it can be opened again

	mu sync.RWMutex

	id    cursor.StoreID
	epoch string // a random part of every version, renewed by a restore

	items        map[key.Key]*item    // for reads
	tree         *btree.BTreeG[*item] // for lists: its copies cost nothing, and each is a snapshot; with the deletions that history holds
	itemsByOwner map[owner]map[*item]struct{}

	at           position
	commitNumber int64 // what the changes of the transaction under way have in common; 0 for a single change
	history      history

	listings *listings
	changeCh chan struct{} // closed by the next change; nil while nobody waits
	restore  chan struct{} // closed by a restore

	fence     *string         // where the store has moved to, if it has
	notes     map[string]note // the journal of the tool that moves data
	noteCount uint64          // notes written so far
}

func newStore() *store {
	s := &store{at: 1, listings: newListings()} // an empty store has revision 1
	s.history = history{maxEvents: defaultHistory, maxBytes: defaultHistoryBytes, spaceCond: sync.Cond{L: &s.mu}, removeDeletion: s.removeDeletion}
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
	s.itemsByOwner = make(map[owner]map[*item]struct{})
	s.history.reset(s.at)
	s.restore = make(chan struct{})
}

func (s *store) limitHistory(changes, bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history.setLimits(changes, bytes)
}

// lockForWriting takes the lock, once there is room in the history for what is going to be written.
func (s *store) lockForWriting() {
	s.mu.Lock()
	s.history.waitForSpace()
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

// snapshotWithCount returns the items as they are now, and how many resources there are among them.
func (s *store) snapshotWithCount() (*btree.BTreeG[*item], int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tree.Copy(), len(s.items)
}

// put stores a resource that nobody else holds, under a new version. The caller holds the lock.
func (s *store) put(k key.Key, res *resourcepb.Resource, size int) *item {
	s.at++
	res.Version = strconv.FormatUint(s.at, 36) + s.epoch
	it := &item{key: k, resource: res, size: size, at: s.at, createPosition: s.at, writes: 1}
	if old := s.items[k]; old != nil {
		it.createPosition, it.writes = old.createPosition, old.writes+1
		s.unlink(old)
	}
	s.load(it)
	s.history.record(it, &driver.Event[position]{
		Key: k, Resource: res, Size: size, At: s.at, Commit: s.commitNumber,
		Revision: int64(it.at), CreateRevision: int64(it.createPosition), Writes: it.writes,
	})
	return it
}

// load makes it part of the data, without a change in history.
func (s *store) load(it *item) {
	s.items[it.key] = it
	s.setInTree(it)
	if o := it.resource.Owner; o != nil {
		ref := owner{key.Of(o), o.Uid}
		children := s.itemsByOwner[ref]
		if children == nil {
			children = make(map[*item]struct{})
			s.itemsByOwner[ref] = children
		}
		children[it] = struct{}{}
	}
}

// setInTree puts an item in the place of what is there.
func (s *store) setInTree(it *item) {
	if before, replaced := s.tree.Set(it); replaced {
		it.before.Store(before)
	}
}

// remove deletes what is stored under a key. The caller holds the lock.
func (s *store) remove(it *item) {
	s.at++
	s.unlink(it)
	delete(s.items, it.key)
	deletion := &item{key: it.key, at: s.at}
	s.setInTree(deletion)
	s.history.record(deletion, &driver.Event[position]{
		Key: it.key, Delete: true, Resource: it.resource, Size: it.size, At: s.at, Commit: s.commitNumber,
		Revision: int64(s.at), CreateRevision: int64(it.createPosition), Writes: it.writes,
	})
}

// removeDeletion removes a deletion that history does not hold any more.
func (s *store) removeDeletion(deletion *item) { s.tree.Delete(deletion) }

// unlink removes the reference of a child to its owner.
func (s *store) unlink(it *item) {
	if it.resource.Owner == nil {
		return
	}
	ref := owner{key.Of(it.resource.Owner), it.resource.Owner.Uid}
	delete(s.itemsByOwner[ref], it)
	if len(s.itemsByOwner[ref]) == 0 {
		delete(s.itemsByOwner, ref)
	}
}

// announce wakes the feeds. The caller holds the lock and has made all changes of a transaction.
func (s *store) announce() {
	if s.changeCh != nil {
		close(s.changeCh)
		s.changeCh = nil
	}
}

// changeSignal returns a channel that the next change closes. The caller holds the lock.
func (s *store) changeSignal() <-chan struct{} {
	if s.changeCh == nil {
		s.changeCh = make(chan struct{})
	}
	return s.changeCh
}

// note is an entry of the journal.
type note struct {
	value    []byte
	revision string
}

// StoreID implements driver.Driver. A restore changes it.
func (s *store) StoreID() driver.StoreID {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.id
}

// checkRetained returns storage.ErrCompacted, unless history reaches back to a position. The caller holds the lock.
func (s *store) checkRetained(at position) error {
	if at < s.history.from || at > s.at {
		return fmt.Errorf("%w: history is kept from revision %d to %d, not at %d", storage.ErrCompacted, s.history.from, s.at, at)
	}
	return nil
}
