package conformance

import (
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// WatchEvent.more says where commits end.
var boundCases = topic{"Bounds", []testCase{
	{name: "Transactions", needs: needBounds | needTransactor, run: boundsOfTransactions},
	{name: "FromEveryCursor", needs: needBounds | needTransactor | needResumer, run: boundsFromEveryCursor},
	{name: "AcrossPages", needs: needBounds | needTransactor | needResumer, run: boundsAcrossPages},
	{name: "UnderLoad", needs: needBounds | needTransactor, run: boundsUnderLoad},
	{name: "NoHalfCapability", run: boundsNoHalf},
}}

// A deed is one write or transaction: the number-th of a writer, who began it after the one before was acknowledged.
type deed struct{ writer, number int }

// deeds remembers who made which change.
type deeds struct {
	s          *suite
	transactor storage.Transactor
	mu         sync.Mutex
	by         map[string]done // by key and label of the event
}

type done struct {
	deed
	id *resourcepb.ID
}

func newOperations(s *suite) *deeds {
	s.Helper()
	return &deeds{s: s, transactor: s.transactor(), by: make(map[string]done)}
}

func nameOf(ev *resourcepb.WatchEvent) string { return keyOf(subject(ev).GetId()) + " " + label(ev) }

func (d *deeds) note(by deed, events ...*resourcepb.WatchEvent) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, ev := range events {
		d.by[nameOf(ev)] = done{by, subject(ev).GetId()}
	}
}

// nothingAt is the version of deletes that do nothing.
const nothingAt = "nothing"

// transact commits ops and notes their events.
func (d *deeds) transact(by deed, ops ...storage.Op) ([]*resourcepb.Resource, error) {
	results, err := d.transactor.Commit(d.s.ctx, ops)
	if err != nil {
		return nil, err
	}
	for i, op := range ops {
		switch {
		case op.Write != nil:
			d.note(by, upserted(results[i]))
		case op.Delete != nil && op.Version != nothingAt:
			d.note(by, deleted(&resourcepb.Resource{Id: op.Delete, Version: op.Version}))
		}
	}
	return results, nil
}

// check holds the events of a watch, as they came, against the deeds. What more joins is a group. A deed lies in one group,
// since a reader sees it as a whole or not at all. Two deeds of one writer lie in two, since there was a time between them
// when a reader could see the first alone. Deeds of different writers may have become visible at once.
func (d *deeds) check(events []*resourcepb.WatchEvent) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	groups := make(map[deed]int)
	numbers := make(map[int]deed) // by writer: the deed in the present group
	group := 0
	for i, ev := range events {
		change, known := d.by[nameOf(ev)]
		if !known {
			return fmt.Errorf("event %d is of a change that nobody made: %s", i, text(ev))
		}
		by := change.deed
		if at, seen := groups[by]; seen && at != group {
			return fmt.Errorf("event %d is of a commit that had ended, %d commits before: %s", i, group-at, text(ev))
		}
		groups[by] = group
		if other, seen := numbers[by.writer]; seen && other != by {
			return fmt.Errorf("event %d is joined to an earlier commit of the same writer: %s", i, text(ev))
		}
		numbers[by.writer] = by
		if !ev.GetMore() {
			group++
			clear(numbers)
		}
	}
	if n := len(events); n > 0 && events[n-1].GetMore() {
		return errors.New("the last event of all says that more of its commit follows")
	}
	return nil
}

// readAll reads n events as they come.
func readEvents(s *suite, w storage.Watch, n int) ([]*resourcepb.WatchEvent, error) {
	var events []*resourcepb.WatchEvent
	for range n {
		ev, err := s.nextOrBookmark(w)
		if err != nil {
			return events, fmt.Errorf("after %d of %d events: %w", len(events), n, err)
		}
		events = append(events, ev)
	}
	return events, nil
}

// matching returns how many of the changes that were noted f lets through.
func (d *deeds) matching(f filter) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for _, change := range d.by {
		if f.selects(change.id) {
			n++
		}
	}
	return n
}

// mixture is one writer's transactions and lone changes: over keys that filters tell apart, with checks and with deletes that
// do nothing.
func (d *deeds) mixture(writer, rounds int) error {
	var left []*resourcepb.Resource
	number := 0
	do := func(ops ...storage.Op) ([]*resourcepb.Resource, error) {
		number++
		return d.transact(deed{writer, number}, ops...)
	}
	name := func(kind string, i int) string { return fmt.Sprintf("%s-%d-%d", kind, writer, i) }
	for i := range rounds {
		ops := []storage.Op{{Check: thingID("nothing")}}
		for j := range i % 5 {
			ops = append(ops, storage.Op{Write: newThing(name([]string{"odd", "even", "third"}[(i+j)%3], 10*i+j))})
		}
		if i%2 == 0 {
			for _, res := range left {
				ops = append(ops, storage.Op{Delete: res.Id, Version: res.Version})
			}
			left = nil
		}
		ops = append(ops, storage.Op{Delete: thingID("odd-nothing-" + strconv.Itoa(writer)), Version: nothingAt})
		results, err := do(ops...)
		if err != nil {
			return err
		}
		for _, res := range results {
			if res != nil {
				left = append(left, res)
			}
		}
		// A lone change after it.
		number++
		lone, err := d.s.b.WriteCAS(d.s.ctx, newThing(name([]string{"odd", "even"}[i%2], 10*i+9)))
		if err != nil {
			return err
		}
		d.note(deed{writer, number}, upserted(lone))
	}
	return nil
}

var boundFilters = []filter{everywhere, {things, home, "odd-"}, {things, home, "even-"}, {things, home, "third-"}}

func boundsOfTransactions(s *suite) {
	d := newOperations(s)
	watches := make([]storage.Watch, len(boundFilters))
	for i, f := range boundFilters {
		watches[i] = s.watch(f.typ, f.tenancy, f.prefix)
		s.snapshot(watches[i])
	}
	s.succeeds("writing", d.mixture(0, s.scale(20)))
	for i, w := range watches {
		events, err := readEvents(s, w, d.matching(boundFilters[i]))
		s.succeeds("Next", err)
		s.succeeds(fmt.Sprintf("a watch of %q", boundFilters[i].prefix), d.check(events))
	}
	// In a snapshot there are no commits.
	w := s.watch(anything, anywhere, "")
	for more := true; more; {
		ev, err := s.nextOrBookmark(w)
		s.succeeds("Next", err)
		if ev.GetMore() {
			s.Fatalf("an event of a snapshot says that more of its commit follows: %s", text(ev))
		}
		more = ev.GetEndOfSnapshot() == nil
	}
}

// boundsFromEveryCursor resumes from everywhere in commits.
func boundsFromEveryCursor(s *suite) {
	d := newOperations(s)
	w := s.watchAll()
	cursors := []string{w.Cursor()}
	s.succeeds("writing", d.mixture(0, s.scale(8)))
	var events []*resourcepb.WatchEvent
	for range d.matching(everywhere) {
		ev, err := s.nextOrBookmark(w)
		s.succeeds("Next", err)
		events, cursors = append(events, ev), append(cursors, w.Cursor())
	}
	for i, cursor := range cursors {
		for _, f := range boundFilters {
			var want []*resourcepb.WatchEvent
			for _, ev := range events[i:] {
				if f.selects(subject(ev).GetId()) {
					want = append(want, ev)
				}
			}
			resumed := s.resume(cursor, f)
			got, err := readEvents(s, resumed, len(want))
			s.succeeds("Next", err)
			resumed.Close()
			for _, ev := range got {
				if !f.selects(subject(ev).GetId()) {
					s.Fatalf("a watch of %q brings %s", f.prefix, text(ev))
				}
			}
			s.succeeds(fmt.Sprintf("a watch of %q from the cursor after event %d", f.prefix, i), d.check(got))
		}
	}
}

// boundsAcrossPages reads transactions of the largest size from history, in which their events lie on several pages.
func boundsAcrossPages(s *suite) {
	d := newOperations(s)
	w := s.watchAll()
	start := w.Cursor()
	most := s.transactor().MaxOps()
	for number := 0; number*most < s.scale(2400); number++ {
		ops := make([]storage.Op, most)
		for i := range ops {
			ops[i].Write = newThing(fmt.Sprintf("%s-%d-%d", []string{"odd", "even"}[i%2], number, i))
		}
		ops[most-1].Write.Id.Name = fmt.Sprintf("third-%d", number)
		_, err := d.transact(deed{0, number}, ops...)
		s.succeeds("Commit", err)
	}
	for _, f := range boundFilters {
		w := s.resume(start, f)
		events, err := readEvents(s, w, d.matching(f))
		s.succeeds("Next", err)
		s.succeeds(fmt.Sprintf("a watch of %q", f.prefix), d.check(events))
		w.Close()
	}
	events, err := readEvents(s, w, d.matching(everywhere))
	s.succeeds("Next", err)
	s.succeeds("a watch that was open all the time", d.check(events))
}

func boundsUnderLoad(s *suite) {
	const writers = 6
	d := newOperations(s)
	watches := make([]storage.Watch, len(boundFilters))
	for i, f := range boundFilters {
		watches[i] = s.watch(f.typ, f.tenancy, f.prefix)
		s.snapshot(watches[i])
	}
	start := watches[0].Cursor()
	s.parallel(writers, func(i int) error { return d.mixture(i, s.scale(40)) })
	for i, w := range watches {
		events, err := readEvents(s, w, d.matching(boundFilters[i]))
		s.succeeds("Next", err)
		s.succeeds(fmt.Sprintf("a watch of %q", boundFilters[i].prefix), d.check(events))
	}
	if s.h.NoResumer != "" {
		return
	}
	for _, f := range boundFilters {
		events, err := readEvents(s, s.resume(start, f), d.matching(f))
		s.succeeds("Next", err)
		s.succeeds(fmt.Sprintf("a watch of %q from a cursor", f.prefix), d.check(events))
	}
}

// boundsNoHalf makes sure that a backend which cannot tell says nothing.
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
	s.succeeds("Commit", err)
	events, err := readEvents(s, w, n)
	s.succeeds("Next", err)
	for _, ev := range events {
		if ev.GetMore() {
			s.Fatalf("an event says that more of its commit follows although Harness.NoCommitBounds says: %s", s.h.NoCommitBounds)
		}
	}
}
