package queue

import (
	"container/heap"
	"math/rand/v2"
	"time"
)

// backoff returns the delay after a number of failures in a row: doubled with each, up to the maximum, less up to a fifth at random, so that keys
// that failed together do not run together.
func (o *Options) backoff(failures uint8) time.Duration {
	delay := o.MaxDelay
	if shift := failures - 1; shift < 62 && o.BaseDelay <= o.MaxDelay>>shift {
		delay = o.BaseDelay << shift
	}
	return delay - rand.N(delay/5+1)
}

// delayHeap is a heap of delayed items with the earliest first.
type delayHeap[K comparable] []*item[K]

func (d *delayHeap[K]) add(it *item[K]) { heap.Push(d, it) }

// remove removes an item if it is delayed.
func (d *delayHeap[K]) remove(it *item[K]) {
	if it.heapIndex >= 0 {
		heap.Remove(d, it.heapIndex)
	}
}

func (d delayHeap[K]) Len() int           { return len(d) }
func (d delayHeap[K]) Less(i, j int) bool { return d[i].dueAt < d[j].dueAt }
func (d delayHeap[K]) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].heapIndex, d[j].heapIndex = i, j
}

// Push implements heap.Interface.
func (d *delayHeap[K]) Push(x any) {
	it := x.(*item[K])
	it.heapIndex = len(*d)
	*d = append(*d, it)
}

// Pop implements heap.Interface.
func (d *delayHeap[K]) Pop() any {
	last := len(*d) - 1
	it := (*d)[last]
	(*d)[last], it.heapIndex = nil, -1
	*d = (*d)[:last]
	return it
}
