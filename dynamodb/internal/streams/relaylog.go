package streams

import (
	"sync"

	"github.com/ashlar-dev/storage/internal/wire"
)

// relayLog contains the latest batches of a relay's reader. Batches have consecutive numbers. The log has every record after its start,
// and may have some that the start contains.
type relayLog struct {
	mu            sync.Mutex
	start         *Position
	first         int // number of the first batch
	batches       []*relayBatch
	events, bytes int
	changeCh      chan struct{} // closed by the next change
}

// relayBatch is a batch of the log. It is immutable.
type relayBatch struct {
	base, end *Position
	events    []*Event
	message   *wire.Batch
	bytes     int
}

// maxLogEvents and maxLogBytes bound the log. A batch without events counts as one event.
const maxLogEvents, maxLogBytes = 100_000, 64 << 20

// maxBatchBytes bounds a batch, except by its last change. A message must be smaller than the limit of the connection, which a round of hundreds of
// shards and the records before a relay's start can exceed.
const maxBatchBytes = 1 << 20

// newRelayBatches returns the batches of events.
func newRelayBatches(base *Position, events []*Event, end *Position) (batches []*relayBatch) {
	b, first := &relayBatch{base: base}, 0
	for i, ev := range events {
		if b.bytes += ev.Size; b.bytes >= maxBatchBytes && i < len(events)-1 {
			b.events, b.end = events[first:i+1], ev.At.afterEvent()
			batches = append(batches, b)
			b, first = &relayBatch{base: b.end}, i+1
		}
	}
	b.events, b.end = events[first:], end
	batches = append(batches, b)
	for _, b := range batches {
		b.message = encodeBatch(b.base, b.events, b.end)
	}
	return batches
}

// weight returns what batches count in the log.
func weight(batches []*relayBatch) (events, bytes int) {
	for _, b := range batches {
		events, bytes = events+max(len(b.events), 1), bytes+b.bytes
	}
	return events, bytes
}

// reset empties the log. The caller holds mu.
func (l *relayLog) reset(start *Position) {
	l.start, l.first, l.batches, l.events, l.bytes = start, l.next(), nil, 0, 0
	l.notify()
}

// notify wakes the waiting goroutines. The caller holds mu.
func (l *relayLog) notify() {
	if l.changeCh != nil {
		close(l.changeCh)
	}
	l.changeCh = make(chan struct{})
}

// next returns the number of the next batch. The caller holds mu.
func (l *relayLog) next() int { return l.first + len(l.batches) }

// end returns the position after the last batch. The caller holds mu.
func (l *relayLog) end() *Position {
	if n := len(l.batches); n > 0 {
		return l.batches[n-1].end
	}
	return l.start
}

// append adds events. The caller holds mu.
func (l *relayLog) append(events []*Event, end *Position) {
	added := newRelayBatches(l.end(), events, end)
	n, bytes := weight(added)
	l.batches, l.events, l.bytes = append(l.batches, added...), l.events+n, l.bytes+bytes
	for len(l.batches) > 1 && (l.events > maxLogEvents || l.bytes > maxLogBytes) {
		dropped := l.batches[0]
		n, bytes := weight(l.batches[:1])
		l.events, l.bytes = l.events-n, l.bytes-bytes
		l.batches[0] = nil // the array is kept
		l.start, l.first, l.batches = dropped.end, l.first+1, l.batches[1:]
	}
	l.notify()
}

// prepend adds events before the first batch, if the log still begins at their end and they fit. The caller holds mu.
func (l *relayLog) prepend(from, start *Position, events []*Event) bool {
	if l.start != start {
		return false
	}
	added := newRelayBatches(from, events, start)
	n, bytes := weight(added)
	if l.events+n > maxLogEvents || l.bytes+bytes > maxLogBytes {
		return false
	}
	l.batches = append(added, l.batches...)
	l.start, l.first, l.events, l.bytes = from, l.first-len(added), l.events+n, l.bytes+bytes
	return true
}

// batch returns the batch of a number, or nil and a channel that is closed by the next change. ok is false if the log begins later.
func (l *relayLog) batch(number int) (b *relayBatch, changed <-chan struct{}, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case number < l.first:
		return nil, nil, false
	case number == l.next():
		return nil, l.changeCh, true
	}
	return l.batches[number-l.first], nil, true
}
