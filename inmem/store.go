package inmem

import (
	"context"
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

// store holds the data shared by its handles.
type store struct {
	mu sync.RWMutex

	id    cursor.StoreID
	epoch string // random part of every version, renewed by a restore

	items        map[key.Key]*item    // for reads
	tree         *btree.BTreeG[*item] // for lists and history: it includes the deletions that history holds, and a copy is a cheap snapshot
	itemsByOwner map[owner]map[*item]struct{}

	at        position
	commitEnd position // after the transaction that is being applied, or an earlier one
	history   history

	changeCh chan struct{} // closed by the next change; nil if no reader waits
	restore  chan struct{} // closed by a restore

	fence     *driver.Fence   // nil for an open store
	notes     map[string]note // journal of the migration tool
	noteCount uint64          // number of notes written, the source of their revisions
}

func newStore() *store {
	s := &store{at: 1} // an empty store has revision 1
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

// historySize returns the number of changes in history.
func (s *store) historySize() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.history.events)
}

// lockForWriting acquires the lock when the history has space for more changes. If ctx ends earlier, it returns an error
// without the lock.
func (s *store) lockForWriting(ctx context.Context) error {
	s.mu.Lock()
	if err := s.history.await(ctx, func() bool { return !s.history.full() }); err != nil {
		s.mu.Unlock()
		return fmt.Errorf("nothing was written: watches have not read the history, which is full: %w", err)
	}
	return nil
}

func (s *store) get(k key.Key) (*item, *driver.Fence) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.items[k], s.fence
}

// snapshot returns a copy of the tree, which the caller owns, its position, and the fence.
func (s *store) snapshot() (*btree.BTreeG[*item], position, *driver.Fence) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tree.Copy(), s.at, s.fence
}

// readError returns the error of a strong read in a store with a fence, or nil.
func readError(ctx context.Context, fence *driver.Fence) error {
	if fence == nil {
		return nil
	}
	return fence.ReadError(ctx)
}

// snapshotWithCount returns a copy of the tree, which the caller owns, and the number of resources in it.
func (s *store) snapshotWithCount() (*btree.BTreeG[*item], int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tree.Copy(), len(s.items)
}

// put stores a resource under a new version and takes ownership of it. The caller holds the lock.
func (s *store) put(k key.Key, res *resourcepb.Resource, size int) *item {
	s.at++
	res.Version = strconv.FormatUint(s.at, 36) + s.epoch
	revision := s.revision()
	it := &item{key: k, resource: res, size: size, at: s.at, revision: revision, createRevision: revision, writes: 1}
	if old := s.items[k]; old != nil {
		it.createRevision, it.writes = old.createRevision, old.writes+1
		s.unlink(old)
	}
	s.load(it)
	s.history.record(it, &driver.Event[position]{
		Key: k, Resource: res, Size: size, At: s.at, Commit: revision,
		Revision: revision, CreateRevision: it.createRevision, Writes: it.writes,
	})
	return it
}

// revision returns the revision of the change at the present position, which its whole transaction shares.
func (s *store) revision() int64 { return int64(max(s.at, s.commitEnd)) }

// load adds an item to the maps and the tree, without a change in history.
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

// setInTree puts an item into the tree and links it to the item that it replaces.
func (s *store) setInTree(it *item) {
	if before, replaced := s.tree.Set(it); replaced {
		it.before.Store(before)
	}
}

// remove deletes an item. The caller holds the lock.
func (s *store) remove(it *item) {
	s.at++
	s.unlink(it)
	delete(s.items, it.key)
	revision := s.revision()
	deletion := &item{key: it.key, at: s.at, revision: revision}
	s.setInTree(deletion)
	s.history.record(deletion, &driver.Event[position]{
		Key: it.key, Delete: true, Resource: it.resource, Size: it.size, At: s.at, Commit: revision,
		Revision: revision, CreateRevision: it.createRevision, Writes: it.writes,
	})
}

// removeDeletion removes a deletion from the tree when history no longer holds it.
func (s *store) removeDeletion(deletion *item) { s.tree.Delete(deletion) }

// unlink removes an item from the index of owners.
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

// announce trims the history and wakes the feeds. The caller holds the lock and has applied the whole transaction.
func (s *store) announce() {
	s.history.trim()
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

// checkRetained returns storage.ErrCompacted unless history holds a position. The caller holds the lock.
func (s *store) checkRetained(at position) error {
	if at < s.history.from || at > s.at {
		return fmt.Errorf("%w: history holds revisions %d to %d, not %d", storage.ErrCompacted, s.history.from, s.at, at)
	}
	return nil
}
