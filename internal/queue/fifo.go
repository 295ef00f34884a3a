package queue

import "time"

// fifo is a list of ready items. An item that has left the list early keeps a void entry, which has another ticket.
type fifo[K comparable] struct {
	entries []entry[K]
	first   int // index of the first entry
	voids   int // number of void entries
	ticket  uint64
}

// entry is an entry of a list. It is void unless the item has its ticket.
type entry[K comparable] struct {
	item   *item[K]
	ticket uint64
	since  time.Duration // since the start of the queue
}

func (f *fifo[K]) push(it *item[K], now time.Duration) {
	f.ticket += 2 // the two lists of a queue must not use one ticket
	it.ticket = f.ticket
	if it.isLow {
		it.ticket++
	}
	f.entries = append(f.entries, entry[K]{it, it.ticket, now})
}

// skip removes void entries from the start and reports whether an entry is left.
func (f *fifo[K]) skip() bool {
	for f.first < len(f.entries) {
		if p := &f.entries[f.first]; p.item.ticket == p.ticket {
			return true
		}
		f.voids--
		f.drop()
	}
	return false
}

// drop removes the first entry.
func (f *fifo[K]) drop() {
	f.entries[f.first] = entry[K]{}
	f.first++
	if f.first == len(f.entries) {
		f.entries, f.first = f.entries[:0], 0
	} else if f.first > 1024 && f.first > len(f.entries)/2 {
		n := copy(f.entries, f.entries[f.first:])
		clear(f.entries[n:])
		f.entries, f.first = f.entries[:n], 0
	}
}

// head returns the time when the first item was added.
func (f *fifo[K]) head() (since time.Duration, ok bool) {
	if !f.skip() {
		return 0, false
	}
	return f.entries[f.first].since, true
}

// pop removes the first item and returns it, nil for none.
func (f *fifo[K]) pop() *item[K] {
	if !f.skip() {
		return nil
	}
	it := f.entries[f.first].item
	f.drop()
	return it
}

// len returns the number of items.
func (f *fifo[K]) len() int { return len(f.entries) - f.first - f.voids }
