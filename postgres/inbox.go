package postgres

import "sync"

// inbox is where one run of the feed is told that there is something new: look in the database, or, for changes that this handle
// made, here they are. Those it takes as they are instead of reading them back.
//
// It may not do so with every change: watches see the changes of a key in order, so what a change replaces has to be published
// first, and that may be the change of another process, which only a poll finds. A row's xmin is the transaction that wrote it,
// so a write knows what it replaces, and the feed knows whether it has published that. Where it has not, it polls.
//
// Each run has an inbox of its own, because one may still be ending when the next begins.
type inbox struct {
	bell chan struct{} // holds a token when there may be something

	mu      sync.Mutex
	batches [][]change
	bytes   int
	look    bool
}

// inboxBytes bounds what waits for a feed that waits for the database. What is beyond, a poll reads.
const inboxBytes = 8 << 20

// attend makes a new inbox the backend's. What was changed before, the first snapshot of its run sees.
func (b *Backend) attend() *inbox {
	in := &inbox{bell: make(chan struct{}, 1)}
	b.inbox.Store(in)
	return in
}

// leave ends what attend began, unless another run attends already.
func (b *Backend) leave(in *inbox) { b.inbox.CompareAndSwap(in, nil) }

// lookAgain has the feed look in the database, if it runs.
func (b *Backend) lookAgain() {
	if in := b.inbox.Load(); in != nil {
		in.add(nil)
	}
}

// handOver gives the feed, if it runs, the changes of one transaction, which has been committed.
func (b *Backend) handOver(batch []change) {
	if in := b.inbox.Load(); in != nil {
		in.add(batch)
	}
}

// add puts a batch in, nil for a look in the database.
func (in *inbox) add(batch []change) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for i := range batch {
		in.bytes += len(batch[i].data)
	}
	switch {
	case batch == nil:
		in.look = true
	case in.bytes > inboxBytes:
		in.look, in.batches = true, nil
	default:
		in.batches = append(in.batches, batch)
	}
	select {
	case in.bell <- struct{}{}:
	default: // it is ringing already
	}
}

// take empties the inbox.
func (in *inbox) take() (batches [][]change, look bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	batches, look = in.batches, in.look
	in.batches, in.look, in.bytes = nil, false, 0
	return batches, look
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
