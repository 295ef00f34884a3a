package storetest

import (
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// WatchAll returns a watch of everything, closed with the test. Its snapshot is yet to be read.
func WatchAll(t testing.TB, b storage.Backend) storage.Watch {
	t.Helper()
	w, err := b.WatchList(Context(t), AllTypes, AllTenancies, "")
	if err != nil {
		t.Fatalf("watch: %v", err)
	}
	t.Cleanup(w.Close)
	return w
}

// WatchChanges is WatchAll, past the snapshot.
func WatchChanges(t testing.TB, b storage.Backend) storage.Watch {
	t.Helper()
	w := WatchAll(t, b)
	for Next(t, w).GetEndOfSnapshot() == nil {
	}
	return w
}

// Next returns the next event of a watch.
func Next(t testing.TB, w storage.Watch) *resourcepb.WatchEvent {
	t.Helper()
	event, err := w.Next(Context(t))
	if err != nil {
		t.Fatalf("next: %v", err)
	}
	return event
}

// Eventually waits until a condition holds.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(Patience)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("waited in vain: %s", what)
		}
	}
}
