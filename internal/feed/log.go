package feed

import (
	"sync/atomic"

	"github.com/ashlar-dev/storage/driver"
)

// node is a batch of events in the log.
type node[P any] struct {
	batch atomic.Pointer[batch[P]] // nil after the node has left the log
	next  atomic.Pointer[node[P]]  // nil at the log's end, and after the node has left the log
	bytes int64                    // of all events that the run has published up to the node
}

type batch[P any] struct {
	events []*driver.Event[P]
	end    P
}

func newNode[P any](events []*driver.Event[P], end P) *node[P] {
	n := &node[P]{}
	n.batch.Store(&batch[P]{events, end})
	return n
}

// log is a bounded list of nodes that always keeps the last one. Appends must not be concurrent.
type log[P any] struct {
	first, last         *node[P]
	events, bytes       int // in the nodes from first to last
	maxEvents, maxBytes int
}

// weight returns the number and the bytes of the events. An empty node counts as one event, so a long run of empty nodes is bounded
// too.
func (b *batch[P]) weight() (events, bytes int) {
	for _, ev := range b.events {
		bytes += ev.Size
	}
	return max(len(b.events), 1), bytes
}

func (l *log[P]) append(n *node[P]) {
	events, bytes := n.batch.Load().weight()
	l.events += events
	l.bytes += bytes
	previous := l.last
	l.last = n
	if previous == nil {
		l.first = n
		return
	}
	previous.next.Store(n)
	for l.first != l.last && (l.events > l.maxEvents || l.bytes > l.maxBytes) {
		dropped := l.first
		events, bytes := dropped.batch.Load().weight()
		l.events -= events
		l.bytes -= bytes
		l.first = dropped.next.Load()
		dropped.batch.Store(nil)
		dropped.next.Store(nil)
	}
}
