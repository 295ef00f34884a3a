package conformance

import (
	"math/rand/v2"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// finish reads everything once more, through every handle, and all watches to their end. A last write of each key follows any
// superfluous event.
func (m *modelRun) finish() {
	m.draw.Rand = rand.New(rand.NewPCG(0, 0))
	for _, id := range m.draw.ids {
		if m.draw.chance(70) {
			res := newResource(withUid(id, m.draw.newUid()))
			if now := m.store.now[keyOf(id)]; now != nil {
				res = withNewData(now.Resource)
			}
			op := storage.Op{Write: res}
			m.note("%s", operationText(op))
			got, err := m.handle().WriteCAS(m.ctx, res)
			m.checkOutcome(op, got, err)
		}
	}
	for i := range m.watches {
		if m.h.NoBookmarker == "" {
			m.requestBookmark(i)
		}
		m.readAll(i)
	}
	for _, f := range m.followers {
		m.followToNewest(f)
	}
	for _, h := range m.handles {
		m.checkList(h, allFilter, "reads show written states")
		for _, id := range m.draw.ids {
			m.checkKey(h, id)
		}
		m.catchUp(h)
	}
}

// catchUp waits until eventual reads show the present.
func (m *modelRun) catchUp(h *modelHandle) {
	err := m.poll(func() error {
		got, err := h.List(m.ctx, eventual, anything, anywhere, "")
		if err == nil {
			err = compareLists(got, allFilter.selectFrom(m.store.resources()))
		}
		return err
	})
	if err != nil {
		failCheck("eventual reads catch up", "an eventual List: %v", err)
	}
	for range 3 {
		owner := m.draw.owner()
		err := m.poll(func() error {
			got, err := h.OwnerReferences(m.ctx, owner)
			var want []*resourcepb.ID
			for _, res := range allFilter.selectFrom(m.store.resources()) {
				if owns(owner, res) {
					want = append(want, res.Id)
				}
			}
			if err == nil {
				err = compareIDs(got, want)
			}
			return err
		})
		if err != nil {
			failCheck("owner references are true", "OwnerReferences of %s: %v", idText(owner), err)
		}
	}
}
