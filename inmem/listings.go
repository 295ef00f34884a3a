package inmem

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tidwall/btree"

	"github.com/ashlar-dev/storage"
)

const (
	pageTTL     = 6 * time.Minute // at least 5 after the last use
	maxListings = 1000            // under way at once; one more is refused
	maxComplete = 16              // whose last page was read, for callers who have lost the answer and ask again
)

// listing is a snapshot whose pages are being read.
type listing struct {
	tree   *btree.BTreeG[*item]
	at     position
	expire *time.Timer
}

// listings are those under way, by a random name that their tokens carry.
type listings struct {
	mu          sync.Mutex
	byID        map[[16]byte]*listing
	completeIDs [][16]byte // of those, the ones whose last page was read, oldest first
}

func newListings() *listings { return &listings{byID: make(map[[16]byte]*listing)} }

// renew returns the listing and lets it live on.
func (ls *listings) renew(id [16]byte) *listing {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.byID[id]
	if l != nil {
		l.expire.Reset(pageTTL)
		ls.unmarkComplete(id)
	}
	return l
}

func (ls *listings) copyOf(l *listing) *btree.BTreeG[*item] {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return l.tree.Copy()
}

// add holds a listing until it has not been used for a while. A listing is never given up for another one: when there are too
// many, the new one is refused.
func (ls *listings) add(id [16]byte, l *listing) error {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	switch {
	case ls.byID == nil:
		return storage.ErrClosed
	case ls.byID[id] != nil:
		return nil
	case len(ls.byID)-len(ls.completeIDs) >= maxListings:
		return fmt.Errorf("%w: %d listings are under way in this store, the most: try again when the last page of one was read, or %v "+
			"after the last use of one", storage.ErrInconsistent, maxListings, pageTTL)
	}
	l.expire = time.AfterFunc(pageTTL, func() { ls.remove(id) })
	ls.byID[id] = l
	return nil
}

// markComplete notes that the last page of a listing was read.
func (ls *listings) markComplete(id [16]byte) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.byID[id] == nil || slices.Contains(ls.completeIDs, id) {
		return
	}
	ls.completeIDs = append(ls.completeIDs, id)
	if len(ls.completeIDs) > maxComplete {
		oldest := ls.completeIDs[0]
		ls.unmarkComplete(oldest)
		ls.byID[oldest].expire.Stop()
		delete(ls.byID, oldest)
	}
}

// unmarkComplete undoes finish. The caller holds the lock.
func (ls *listings) unmarkComplete(id [16]byte) {
	ls.completeIDs = slices.DeleteFunc(ls.completeIDs, func(f [16]byte) bool { return f == id })
}

func (ls *listings) remove(id [16]byte) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.unmarkComplete(id)
	delete(ls.byID, id)
}

// close ends the listings of a store that nobody can open again.
func (ls *listings) close() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.byID {
		l.expire.Stop()
	}
	ls.byID, ls.completeIDs = nil, nil
}
