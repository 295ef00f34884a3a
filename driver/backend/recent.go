package backend

import (
	"strings"
	"sync"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/resourcepb"
)

// swapCache is what a handle has swapped of late. Who swaps a key again, and expects the state that the handle has left there, needs no look
// at it: the change depends on the version, which says all. Another state than that, and no harm is done.
type swapCache struct {
	mu    sync.Mutex
	swaps map[driver.Key]swap
}

// swap is what is left of a record: nothing of its contents.
type swap struct {
	uid, version                        string
	createRevision, modRevision, writes int64
}

// maxSwaps is how many keys are remembered, each with some 400 bytes.
const maxSwaps = 1 << 14

// note remembers what was stored.
func (r *swapCache) note(k driver.Key, stored *storage.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.swaps == nil {
		r.swaps = make(map[driver.Key]swap)
	}
	if _, there := r.swaps[k]; !there && len(r.swaps) >= maxSwaps {
		for any := range r.swaps {
			delete(r.swaps, any)
			break
		}
	}
	// The texts may be parts of larger ones.
	k = driver.Key{
		Group: strings.Clone(k.Group), Kind: strings.Clone(k.Kind), Name: strings.Clone(k.Name),
		Partition: strings.Clone(k.Partition), Namespace: strings.Clone(k.Namespace),
	}
	r.swaps[k] = swap{
		uid: strings.Clone(stored.Resource.GetId().GetUid()), version: strings.Clone(stored.Resource.GetVersion()),
		createRevision: stored.Created, modRevision: stored.Modified, writes: stored.Writes,
	}
}

// at returns the record of a key, of whose resource only the uid and the version are there, if it was left at a revision; nil if that is
// not known.
func (r *swapCache) at(k driver.Key, revision int64) *storage.Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, there := r.swaps[k]
	if !there || s.modRevision != revision {
		return nil
	}
	return &storage.Record{
		Resource: &resourcepb.Resource{Id: &resourcepb.ID{Uid: s.uid}, Version: s.version},
		Created:  s.createRevision, Modified: s.modRevision, Writes: s.writes,
	}
}
