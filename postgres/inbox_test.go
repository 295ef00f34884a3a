package postgres

import "testing"

// TestInboxOfTheNextRun has one run of the feed end after the next has begun.
func TestInboxOfTheNextRun(t *testing.T) {
	t.Parallel()
	b := &Backend{}
	b.handOver([]change{{seq: 1}}) // nobody runs
	first := b.attend()
	next := b.attend()
	b.handOver([]change{{seq: 2}})
	b.leave(first)
	b.handOver([]change{{seq: 3}})
	b.lookAgain()
	if batches, look := first.take(); len(batches) > 0 || look {
		t.Errorf("the run that ends got %v, to look: %v", batches, look)
	}
	batches, look := next.take()
	if len(batches) != 2 || batches[0][0].seq != 2 || batches[1][0].seq != 3 || !look {
		t.Errorf("the next run got %v, to look: %v", batches, look)
	}
	b.leave(next)
	b.handOver([]change{{seq: 4}})
	if batches, look := next.take(); len(batches) > 0 || look {
		t.Errorf("after the end: %v, to look: %v", batches, look)
	}
}

// TestInboxOverflows has the feed look instead of keeping what it does not fetch.
func TestInboxOverflows(t *testing.T) {
	t.Parallel()
	b := &Backend{}
	in := b.attend()
	for range 3 {
		b.handOver([]change{{data: make([]byte, inboxBytes/2)}})
	}
	if batches, look := in.take(); len(batches) > 0 || !look {
		t.Errorf("%d batches, to look: %v", len(batches), look)
	}
	b.handOver([]change{{seq: 1}})
	if batches, look := in.take(); len(batches) != 1 || look {
		t.Errorf("afterwards %d batches, to look: %v", len(batches), look)
	}
}
