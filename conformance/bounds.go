package conformance

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// WatchEvent.more says where commits end.
var boundCases = topic{"Bounds", []testCase{
	{name: "Transactions", needs: needBounds | needTransactor, run: boundsOfTransactions},
	{name: "FromEveryCursor", needs: needBounds | needTransactor | needResumer, run: boundsFromEveryCursor},
	{name: "AcrossPages", needs: needBounds | needTransactor | needResumer, run: boundsAcrossPages},
	{name: "NoHalfCapability", run: boundsNoHalf},
}}

// operations records which operation made each change. An operation is a write or a transaction; each begins after the previous
// one was acknowledged.
type operations struct {
	s          *suite
	transactor storage.Transactor
	count      int
	by         map[string]int // the operation by key and label of its event
	ids        []*resourcepb.ID
}

func newOperations(s *suite) *operations {
	s.Helper()
	return &operations{s: s, transactor: s.transactor(), by: make(map[string]int)}
}

func eventName(ev *resourcepb.WatchEvent) string { return keyOf(subject(ev).GetId()) + " " + label(ev) }

// add records the events of the next operation.
func (o *operations) add(events ...*resourcepb.WatchEvent) {
	o.count++
	for _, ev := range events {
		o.by[eventName(ev)] = o.count
		o.ids = append(o.ids, subject(ev).GetId())
	}
}

// noVersion is the version of deletes that do nothing.
const noVersion = "nothing"

// transact commits ops and records their events.
func (o *operations) transact(ops ...storage.Op) []*resourcepb.Resource {
	o.s.Helper()
	results := o.s.commit(ops...)
	var events []*resourcepb.WatchEvent
	for i, op := range ops {
		switch {
		case op.Write != nil:
			events = append(events, upsertEvent(results[i]))
		case op.Delete != nil && op.Version != noVersion:
			events = append(events, deleteEvent(&resourcepb.Resource{Id: op.Delete, Version: op.Version}))
		}
	}
	o.add(events...)
	return results
}

// check checks the commits of a watch, in the order of its events: a commit holds the events of one operation, all of them, since
// there was a time between two operations when a reader could see the first alone.
func (o *operations) check(events []*resourcepb.WatchEvent) error {
	groups := make(map[int]int) // by operation
	group, current := 0, 0
	for i, ev := range events {
		by, known := o.by[eventName(ev)]
		if !known {
			return fmt.Errorf("event %d is of a change that no operation made: %s", i, shortText(ev))
		}
		if at, seen := groups[by]; seen && at != group {
			return fmt.Errorf("event %d is of a commit that had ended %d commits before: %s", i, group-at, shortText(ev))
		}
		groups[by] = group
		if current != 0 && current != by {
			return fmt.Errorf("event %d is joined to an earlier commit: %s", i, shortText(ev))
		}
		if current = by; !ev.GetMore() {
			group++
			current = 0
		}
	}
	if n := len(events); n > 0 && events[n-1].GetMore() {
		return errors.New("the last event of all says that its commit continues")
	}
	return nil
}

// readEvents reads n events as they come.
func readEvents(s *suite, w storage.Watch, n int) []*resourcepb.WatchEvent {
	s.Helper()
	var events []*resourcepb.WatchEvent
	for range n {
		ev, err := s.nextOrBookmark(w)
		if err != nil {
			s.Fatalf("Next after %d of %d events: %v", len(events), n, err)
		}
		events = append(events, ev)
	}
	return events
}

// checkWatch reads the events of all operations that f selects and checks their commits.
func (o *operations) checkWatch(what string, w storage.Watch, f filter) {
	o.s.Helper()
	n := 0
	for _, id := range o.ids {
		if f.selects(id) {
			n++
		}
	}
	o.s.noError(fmt.Sprintf("%s of prefix %q", what, f.prefix), o.check(readEvents(o.s, w, n)))
}

// mixture makes transactions and single writes on keys that filters separate, with checks and with deletes that do nothing.
func (o *operations) mixture(rounds int) {
	o.s.Helper()
	var remaining []*resourcepb.Resource
	for i := range rounds {
		ops := []storage.Op{{Check: thingID("nothing")}}
		for j := range i % 5 {
			ops = append(ops, storage.Op{Write: newThing(fmt.Sprintf("%s-%d", []string{"odd", "even", "third"}[(i+j)%3], 10*i+j))})
		}
		if i%2 == 0 {
			for _, res := range remaining {
				ops = append(ops, storage.Op{Delete: res.Id, Version: res.Version})
			}
			remaining = nil
		}
		ops = append(ops, storage.Op{Delete: thingID("odd-nothing"), Version: noVersion})
		for _, res := range o.transact(ops...) {
			if res != nil {
				remaining = append(remaining, res)
			}
		}
		o.add(upsertEvent(o.s.create(fmt.Sprintf("%s-%d", []string{"odd", "even"}[i%2], 10*i+9))))
	}
}

var boundFilters = []filter{allFilter, {things, home, "odd-"}, {things, home, "even-"}, {things, home, "third-"}}

func boundsOfTransactions(s *suite) {
	o := newOperations(s)
	watches := make([]storage.Watch, len(boundFilters))
	for i, f := range boundFilters {
		watches[i] = s.watch(f.typ, f.tenancy, f.prefix)
		s.snapshot(watches[i])
	}
	o.mixture(s.scale(20))
	for i, w := range watches {
		o.checkWatch("a watch", w, boundFilters[i])
	}
	// A snapshot has no commits.
	w := s.watch(anything, anywhere, "")
	for more := true; more; {
		ev := readEvents(s, w, 1)[0]
		if ev.GetMore() {
			s.Fatalf("an event of a snapshot says that its commit continues: %s", shortText(ev))
		}
		more = ev.GetEndOfSnapshot() == nil
	}
}

// boundsFromEveryCursor resumes at every event of a history, also inside of commits.
func boundsFromEveryCursor(s *suite) {
	o := newOperations(s)
	w := s.watchAll()
	cursors := []string{w.Cursor()}
	o.mixture(s.scale(8))
	var events []*resourcepb.WatchEvent
	for range o.ids {
		events = append(events, readEvents(s, w, 1)...)
		cursors = append(cursors, w.Cursor())
	}
	for i, cursor := range cursors {
		for _, f := range boundFilters {
			n := 0
			for _, ev := range events[i:] {
				if f.selects(subject(ev).GetId()) {
					n++
				}
			}
			resumed := s.resume(cursor, f)
			got := readEvents(s, resumed, n)
			resumed.Close()
			for _, ev := range got {
				if !f.selects(subject(ev).GetId()) {
					s.Fatalf("a watch of prefix %q returned %s", f.prefix, shortText(ev))
				}
			}
			s.noError(fmt.Sprintf("a watch of prefix %q from the cursor after event %d", f.prefix, i), o.check(got))
		}
	}
}

// boundsAcrossPages reads transactions of the largest size from history. Their events lie on several pages.
func boundsAcrossPages(s *suite) {
	o := newOperations(s)
	w := s.watchAll()
	start := w.Cursor()
	size := o.transactor.MaxOps()
	for number := 0; number*size < s.scale(2400); number++ {
		ops := make([]storage.Op, size)
		for i := range ops {
			ops[i].Write = newThing(fmt.Sprintf("%s-%d-%d", []string{"odd", "even"}[i%2], number, i))
		}
		ops[size-1].Write.Id.Name = fmt.Sprintf("third-%d", number)
		o.transact(ops...)
	}
	for _, f := range boundFilters {
		w := s.resume(start, f)
		o.checkWatch("a watch of history", w, f)
		w.Close()
	}
	o.checkWatch("a watch that was open all the time", w, allFilter)
}

// boundsNoHalf checks that a backend without commit bounds sets no More.
func boundsNoHalf(s *suite) {
	w := s.watchAll()
	transactor, ok := storage.As[storage.Transactor](s.b)
	if s.h.NoCommitBounds == "" || !ok {
		return
	}
	const n = 8
	var ops []storage.Op
	for i := range n {
		ops = append(ops, storage.Op{Write: newThing("name-" + strconv.Itoa(i))})
	}
	_, err := transactor.Commit(s.ctx, ops)
	s.noError("Commit", err)
	for _, ev := range readEvents(s, w, n) {
		if ev.GetMore() {
			s.Fatalf("an event says that its commit continues although Harness.NoCommitBounds says: %s", s.h.NoCommitBounds)
		}
	}
}
