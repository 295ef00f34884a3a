package dynamofake

import (
	"strings"
	"sync"
)

// Prepared is a transaction that a test holds after its conditions were checked and before it is applied. Meanwhile other transactions, and
// conditional writes, on its items conflict with it. A write without a condition is applied: it overtakes the transaction. Source:
// "Distributed Transactions at Scale in Amazon DynamoDB" (USENIX ATC 2023), sections 4 and 5.
type Prepared struct {
	class    byte
	readyCh  chan struct{}
	commitCh chan struct{}
	commit   sync.Once
	items    map[address]bool // nil before the transaction is prepared
}

// holder is the part of a server that holds a transaction.
type holder struct {
	server    sync.Locker // the server's lock, which is held during calls
	held      *Prepared
	conflicts int
}

// Ready is closed when the transaction is prepared.
func (p *Prepared) Ready() <-chan struct{} { return p.readyCh }

// Commit applies the transaction.
func (p *Prepared) Commit() { p.commit.Do(func() { close(p.commitCh) }) }

// prepare holds a transaction whose conditions are met, if the test wants that. It releases the lock meanwhile.
func (h *holder) prepare(members []member) {
	p := h.held
	if p == nil || p.items != nil || !p.wants(members) {
		return
	}
	p.items = make(map[address]bool)
	for _, m := range members {
		p.items[m.write().address()] = true
	}
	close(p.readyCh)
	h.server.Unlock()
	<-p.commitCh
	h.server.Lock()
	h.held = nil
}

func (p *Prepared) wants(members []member) bool {
	for _, m := range members {
		if m.ConditionCheck == nil {
			continue
		}
		if _, rest, ok := strings.Cut(m.ConditionCheck.address().pk, "\x00"); ok && rest[0] == p.class {
			return true
		}
	}
	return false
}

// conflict returns the refusal of a request with these items if one of them belongs to a prepared transaction.
func (h *holder) conflict(op string, in *request) error {
	if h.held == nil {
		return nil
	}
	conflicts := func(w *write) bool { return h.held.items[w.address()] }
	switch op {
	case "PutItem", "DeleteItem":
		if w := (&write{Item: in.Item, Key: in.Key}); in.ConditionExpression != "" && conflicts(w) {
			h.conflicts++
			return refuse("TransactionConflictException", "Transaction is ongoing for the item")
		}
	case "TransactWriteItems", "TransactGetItems":
		reasons := make([]object, len(in.TransactItems))
		found := false
		for i, m := range in.TransactItems {
			reasons[i] = object{"Code": "None"}
			w := m.Get
			if w == nil {
				w = m.write()
			}
			if conflicts(w) {
				found = true
				reasons[i] = object{"Code": "TransactionConflict", "Message": "Transaction is ongoing for the item"}
			}
		}
		if found {
			h.conflicts++
			r := refuse("TransactionCanceledException", "Transaction cancelled")
			r.more = object{"CancellationReasons": reasons}
			return r
		}
	}
	return nil
}
