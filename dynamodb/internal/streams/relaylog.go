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
	changed       chan struct{} // closed by the next change
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

func newRelayBatch(base *Position, events []*Event, end *Position) *relayBatch {
	b := &relayBatch{base: base, end: end, events: events, message: encodeBatch(base, events, end)}
	for _, ev := range events {
		b.bytes += ev.Size
	}
	return b
}

func (b *relayBatch) weight() (events, bytes int) { return max(len(b.events), 1), b.bytes }

// reset empties the log. The caller holds mu.
func (l *relayLog) reset(start *Position) {
	l.start, l.first, l.batches, l.events, l.bytes = start, l.next(), nil, 0, 0
	l.notify()
}

// notify wakes the waiting goroutines. The caller holds mu.
func (l *relayLog) notify() {
	if l.changed != nil {
		close(l.changed)
	}
	l.changed = make(chan struct{})
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

// append adds a batch. The caller holds mu.
func (l *relayLog) append(events []*Event, end *Position) {
	b := newRelayBatch(l.end(), events, end)
	l.batches = append(l.batches, b)
	n, bytes := b.weight()
	l.events, l.bytes = l.events+n, l.bytes+bytes
	for len(l.batches) > 1 && (l.events > maxLogEvents || l.bytes > maxLogBytes) {
		dropped := l.batches[0]
		n, bytes := dropped.weight()
		l.events, l.bytes = l.events-n, l.bytes-bytes
		l.start, l.first, l.batches = dropped.end, l.first+1, l.batches[1:]
	}
	l.notify()
}

// prepend adds a batch before the first one, if the log still begins at its end and the batch fits. The caller holds mu.
func (l *relayLog) prepend(from, start *Position, events []*Event) bool {
	if l.start != start {
		return false
	}
	b := newRelayBatch(from, events, start)
	n, bytes := b.weight()
	if l.events+n > maxLogEvents || l.bytes+bytes > maxLogBytes {
		return false
	}
	l.batches = append([]*relayBatch{b}, l.batches...)
	l.start, l.first, l.events, l.bytes = from, l.first-1, l.events+n, l.bytes+bytes
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
		return nil, l.changed, true
	}
	return l.batches[number-l.first], nil, true
}
