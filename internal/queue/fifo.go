package queue

import "time"

// fifo is a list of ready items. An item that has left the list early keeps a void place, which has another ticket.
type fifo[K comparable] struct {
	places []place[K]
	first  int // index of the first place
	voids  int // number of void places
	ticket uint64
}

// place is a place in a list. It is void unless the item has its ticket.
type place[K comparable] struct {
	item   *item[K]
	ticket uint64
	since  time.Time
}

func (f *fifo[K]) push(it *item[K], now time.Time) {
	f.ticket += 2 // the two lists of a queue must not use one ticket
	it.ticket = f.ticket
	if it.isLow {
		it.ticket++
	}
	f.places = append(f.places, place[K]{it, it.ticket, now})
}

// skip removes void places from the start and reports whether a place is left.
func (f *fifo[K]) skip() bool {
	for f.first < len(f.places) {
		if p := &f.places[f.first]; p.item.ticket == p.ticket {
			return true
		}
		f.voids--
		f.drop()
	}
	return false
}

// drop removes the first place.
func (f *fifo[K]) drop() {
	f.places[f.first] = place[K]{}
	f.first++
	if f.first == len(f.places) {
		f.places, f.first = f.places[:0], 0
	} else if f.first > 1024 && f.first > len(f.places)/2 {
		n := copy(f.places, f.places[f.first:])
		clear(f.places[n:])
		f.places, f.first = f.places[:n], 0
	}
}

// head returns the time when the first item was added.
func (f *fifo[K]) head() (since time.Time, ok bool) {
	if !f.skip() {
		return time.Time{}, false
	}
	return f.places[f.first].since, true
}

// pop removes the first item and returns it, nil for none.
func (f *fifo[K]) pop() *item[K] {
	if !f.skip() {
		return nil
	}
	it := f.places[f.first].item
	f.drop()
	return it
}

// len returns the number of items.
func (f *fifo[K]) len() int { return len(f.places) - f.first - f.voids }
