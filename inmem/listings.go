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
	pageTTL     = 6 * time.Minute // from the last use; the contract promises 5 minutes
	maxListings = 1000            // listings in progress; further ones are refused
	maxComplete = 16              // complete listings, kept for callers that lost the last page and ask again
)

// listing is a snapshot that a caller reads in pages.
type listing struct {
	tree   *btree.BTreeG[*item]
	at     position
	expire *time.Timer
}

// listings holds the listings in progress by their random id, which is part of continue tokens.
type listings struct {
	mu          sync.Mutex
	byID        map[[16]byte]*listing
	completeIDs [][16]byte // ids of the listings whose last page was read, oldest first
}

func newListings() *listings { return &listings{byID: make(map[[16]byte]*listing)} }

// renew returns a listing and extends its lifetime.
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

// add keeps a listing until it is unused for pageTTL. A listing is never dropped in favor of another: beyond
// maxListings, new ones are refused.
func (ls *listings) add(id [16]byte, l *listing) error {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	switch {
	case ls.byID == nil:
		return storage.ErrClosed
	case ls.byID[id] != nil:
		return nil
	case len(ls.byID)-len(ls.completeIDs) >= maxListings:
		return fmt.Errorf("%w: the store has the maximum of %d unfinished listings: try again after one is read to its end, or %v "+
			"after its last use", storage.ErrInconsistent, maxListings, pageTTL)
	}
	l.expire = time.AfterFunc(pageTTL, func() { ls.remove(id) })
	ls.byID[id] = l
	return nil
}

// markComplete records that the last page of a listing was read.
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

// unmarkComplete undoes markComplete. The caller holds the lock.
func (ls *listings) unmarkComplete(id [16]byte) {
	ls.completeIDs = slices.DeleteFunc(ls.completeIDs, func(f [16]byte) bool { return f == id })
}

func (ls *listings) remove(id [16]byte) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.unmarkComplete(id)
	delete(ls.byID, id)
}

// close drops the listings of a store that cannot be opened again.
func (ls *listings) close() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.byID {
		l.expire.Stop()
	}
	ls.byID, ls.completeIDs = nil, nil
}
