package conformance

import (
	"fmt"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// A modelHandle is a handle and the oldest state that its eventual reads may still return. Floors are numbers of changes.
type modelHandle struct {
	storage.Backend
	store      *modelStore
	keepsOrder bool           // events of different keys come in the order of commits
	floor      int            // of all keys
	floors     map[string]int // by key
	references map[string]int // by key of a child: of owner references only
}

func newModelHandle(b storage.Backend, store *modelStore, ordered bool) *modelHandle {
	return &modelHandle{b, store, ordered, 0, make(map[string]int), make(map[string]int)}
}

// check returns an error unless an eventual answer about a key is a state that is not older than the handle's earlier answers and
// events.
func (h *modelHandle) check(key string, floor int, matches func(stored *resourcepb.Resource) bool) *violation {
	at, found := h.store.observe(key, max(floor, h.floor, h.floors[key]), matches)
	if found {
		h.floors[key] = at
		return nil
	}
	if _, past := h.store.observe(key, 0, matches); past {
		return &violation{"eventual reads do not go back", fmt.Sprintf("%q is older than an earlier answer or event of the handle", key)}
	}
	return &violation{"eventual reads show written states", fmt.Sprintf("%q was never like this", key)}
}

// checkRead checks the answer of an eventual Read.
func (h *modelHandle) checkRead(id *resourcepb.ID, got *resourcepb.Resource, err error) {
	matches := func(stored *resourcepb.Resource) bool { return readMatches(stored, id, got, err) }
	if v := h.check(keyOf(id), 0, matches); v != nil {
		failCheck(v.check, "an eventual Read of %s: got %s, error %v: %s", idText(id), shortText(got), quoteError(err), v.text)
	}
}

// raiseFloors raises the floors to the event of a change.
func (h *modelHandle) raiseFloors(change int) {
	c := h.store.changes[change]
	h.floors[c.key] = max(h.floors[c.key], change+1)
	for first := change; h.keepsOrder && first >= 0 && h.store.changes[first].commit == c.commit; first-- {
		h.floor = max(h.floor, first)
	}
	if c.now != nil {
		return
	}
	for key, r := range h.store.at(change) {
		if owns(c.before.Resource.Id, r.Resource) {
			h.references[key] = max(h.references[key], change)
		}
	}
}
