package faults

import "testing"

// A watch is killed after its snapshot and continues in the next process from its cursor. If lists are no snapshots, it may repeat the
// changes that the list contained. It misses no change, and returns no change twice.
func TestProbeAfterKill(t *testing.T) {
	t.Parallel()
	create := func(version string) event { return event{key: "k", now: state{"u", version}} }
	remove := event{key: "k", now: state{"u", "b"}, isDelete: true}
	steps := []event{create("a"), create("b"), remove, create("c"), create("d"), create("e")}
	in := func(process int, indexes ...int) (events []event) {
		for _, i := range indexes {
			ev := steps[i]
			ev.process = process
			events = append(events, ev)
		}
		return events
	}
	for name, c := range map[string]struct {
		listed     state // in the list
		isSnapshot bool
		events     []event
		fails      bool
	}{
		"continues":                           {listed: state{"u", "c"}, events: in(2, 4, 5)},
		"repeats the listed change":           {listed: state{"u", "c"}, events: in(2, 3, 4, 5)},
		"repeats more":                        {listed: state{"u", "c"}, events: in(2, 1, 2, 3, 4, 5)},
		"repeats changes before an absence":   {events: in(2, 1, 2, 3)},
		"repeats in the third process":        {listed: state{"u", "c"}, events: in(3, 3, 4)},
		"continues after an event":            {listed: state{"u", "c"}, events: append(in(1, 4), in(2, 5)...)},
		"misses a change":                     {listed: state{"u", "c"}, events: in(2, 5), fails: true},
		"misses a change between repeated":    {listed: state{"u", "c"}, events: in(2, 1, 3), fails: true},
		"repeats a returned change":           {listed: state{"u", "c"}, events: append(in(1, 4), in(2, 4)...), fails: true},
		"repeats one twice":                   {listed: state{"u", "c"}, events: append(in(2, 3), in(3, 3)...), fails: true},
		"repeats without a kill":              {listed: state{"u", "c"}, events: in(1, 3), fails: true},
		"repeats after a snapshot":            {listed: state{"u", "c"}, isSnapshot: true, events: in(2, 3), fails: true},
		"begins in the middle":                {isSnapshot: true, events: in(2, 1), fails: true},
		"begins in the middle without a kill": {events: in(1, 1), fails: true},
	} {
		list := &call{isSnapshot: c.isSnapshot, parts: []part{{verb: read, key: "k", observedState: c.listed}}}
		e := &evidence{keyHistories: map[string]*keyHistory{"k": newKeyHistory("k", steps)}}
		if got := checkProbe(e, &probe{process: 1, from: origin{list: list}, events: c.events}); (got != "") != c.fails {
			t.Errorf("a watch that %s: the check says %q", name, got)
		}
	}
}
