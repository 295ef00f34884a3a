package postgres

import (
	"sync"
)

// own are the changes that this handle made and that its feed has not published yet. The feed takes them as they are instead of
// reading them back.
//
// It may not do so with every change: watches see the changes of a key in order, so what a change replaces has to be published
// first, and that may be the change of another process, which only a poll finds. A row's xmin is the transaction that wrote it,
// so a write knows what it replaces, and the feed knows whether it has published that. Where it has not, it polls.
type own struct {
	mu      sync.Mutex
	open    bool // the feed runs
	batches [][]change
	bytes   int
	missed  bool // there were too many
	bell    chan struct{}
}

// ownBytes bounds what waits for a feed that waits for the database. What is beyond, a poll reads.
const ownBytes = 8 << 20

// begin makes the feed the one that takes. What was made before, its first snapshot sees.
func (o *own) begin() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open = true
}

func (o *own) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open, o.missed, o.batches, o.bytes = false, false, nil, 0
}

// give hands over the changes of one transaction, which has been committed.
func (o *own) give(batch []change) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.open {
		return
	}
	for i := range batch {
		o.bytes += len(batch[i].data)
	}
	if o.bytes > ownBytes {
		o.missed, o.batches = true, nil
	} else {
		o.batches = append(o.batches, batch)
	}
	select {
	case o.bell <- struct{}{}:
	default: // it is ringing already
	}
}

// take returns what was handed over. If there was too much, the feed has to poll.
func (o *own) take() (batches [][]change, missed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	batches, missed = o.batches, o.missed
	o.batches, o.missed, o.bytes = nil, false, 0
	return batches, missed
}

// changesOf returns the changes of operations that were carried out together, false if it takes a poll to learn them.
func changesOf(ops []*op) ([]change, bool) {
	batch := make([]change, 0, len(ops))
	for _, o := range ops {
		switch {
		case !o.applied:
		case o.logged.replaced == 0:
			return nil, false
		default:
			batch = append(batch, change{
				xid: o.logged.xid, seq: o.logged.seq, replaced: o.logged.replaced,
				op: o.kind, key: o.keyBytes, version: o.token, data: o.data,
			})
		}
	}
	return batch, true
}

// longestGap bounds the transactions of others that a snapshot is put together around.
const longestGap = 64

// follows tells whether all that a batch replaces is among what s sees, so that it can be published next.
func (s *snapshot) follows(batch []change) bool {
	for i := range batch {
		if batch[i].replaced >= s.xmin {
			return false
		}
	}
	return s.missing(batch[0].xid)+len(s.inFlight) <= longestGap
}

// since returns the transaction that a row's xmin means, which has only the lower half of the number. It came before another
// one, which is known. Rows so old that their xmin has come round again seem younger than they are.
func since(xmin uint32, later uint64) uint64 {
	const round = 1 << 32
	xid := later&^(round-1) | uint64(xmin)
	if xid > later && xid >= round {
		xid -= round
	}
	return xid
}
