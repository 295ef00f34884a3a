package conformance

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage/resourcepb"
)

// A journal notes every successful change and then reports whether a watch has shown each of them once and in order. Writers
// may run at once. Keys that only one goroutine changes are noted in order anyway; keys that several change must be created
// once and never deleted, so that the order follows from the version that each write replaced.
type journal struct {
	mu   sync.Mutex
	keys map[string][]entry
}

type entry struct {
	event    *resourcepb.WatchEvent
	replaced string // the version before
}

func newJournal() *journal { return &journal{keys: make(map[string][]entry)} }

func (j *journal) wrote(replaced string, res *resourcepb.Resource) {
	j.note(keyOf(res.Id), entry{upserted(clone(res)), replaced})
}

func (j *journal) deleted(res *resourcepb.Resource) {
	j.note(keyOf(res.Id), entry{deleted(clone(res)), res.Version})
}

func (j *journal) note(key string, e entry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.keys[key] = append(j.keys[key], e)
}

// mark returns how many changes of each key have been noted.
func (j *journal) mark() map[string]int {
	j.mu.Lock()
	defer j.mu.Unlock()
	m := make(map[string]int, len(j.keys))
	for key, entries := range j.keys {
		m[key] = len(entries)
	}
	return m
}

// chain puts the changes of each key in the order in which each replaced the one before. It fails if two writes replaced the
// same version: one of them was lost.
func (j *journal) chain() error {
	for key, entries := range j.keys {
		next := make(map[string]entry, len(entries))
		for _, e := range entries {
			if other, twice := next[e.replaced]; twice {
				return fmt.Errorf("lost update: version %q of %q was replaced twice, by %q and by %q",
					e.replaced, key, subject(other.event).GetVersion(), subject(e.event).GetVersion())
			}
			next[e.replaced] = e
		}
		ordered := entries[:0:0]
		for at := ""; len(ordered) < len(entries); {
			e, ok := next[at]
			if !ok {
				return fmt.Errorf("lost update: nothing replaced version %q of %q, which is not the last of %d writes", at, key, len(entries))
			}
			ordered = append(ordered, e)
			at = subject(e.event).GetVersion()
		}
		j.keys[key] = ordered
	}
	return nil
}

// complete returns what tells drain that the last change of every key has been seen. Call it when all writers are done.
func (j *journal) complete() func(*drained) bool {
	last := make(map[string]string)
	for key, entries := range j.keys {
		last[key] = label(entries[len(entries)-1].event)
	}
	checked := 0
	first := true
	return func(d *drained) bool {
		if first {
			first = false
			for _, res := range d.snapshot {
				if key := keyOf(res.Id); last[key] == label(upserted(res)) {
					delete(last, key)
				}
			}
		}
		for ; checked < len(d.events); checked++ {
			if key := keyOf(subject(d.events[checked]).GetId()); last[key] == label(d.events[checked]) {
				delete(last, key)
			}
		}
		return len(last) == 0
	}
}

// check holds what a watch has shown against the journal. The snapshot must be at or after the mark taken before the watch
// was opened, and at or before one taken after it was.
func (j *journal) check(d *drained, before, after map[string]int, merges bool) error {
	position := make(map[string]int) // by key: how many of its changes the snapshot holds
	for _, res := range d.snapshot {
		key := keyOf(res.Id)
		i := slices.IndexFunc(j.keys[key], func(e entry) bool { return proto.Equal(e.event, upserted(res)) })
		if i < 0 {
			return fmt.Errorf("the snapshot shows what nobody wrote: %s", text(res))
		}
		if _, twice := position[key]; twice {
			return fmt.Errorf("the snapshot shows %q twice", key)
		}
		position[key] = i + 1
	}
	events := make(map[string][]*resourcepb.WatchEvent)
	for _, ev := range d.events {
		key := keyOf(subject(ev).GetId())
		events[key] = append(events[key], ev)
	}
	for _, key := range slices.Sorted(maps.Keys(j.keys)) {
		if err := j.checkKey(key, position, events[key], before[key], after[key], merges); err != nil {
			return fmt.Errorf("key %q: %w", key, err)
		}
		delete(events, key)
	}
	for key := range events {
		return fmt.Errorf("events of %q, which nobody changed", key)
	}
	return nil
}

func (j *journal) checkKey(key string, position map[string]int, got []*resourcepb.WatchEvent, before, after int, merges bool) error {
	entries := j.keys[key]
	at, inSnapshot := position[key]
	if !inSnapshot {
		// The key was absent: the watch begins before its first change or just after a deletion.
		at = 0
		if len(got) > 0 {
			at = slices.IndexFunc(entries, func(e entry) bool { return proto.Equal(e.event, got[0]) })
		} else if before > 0 {
			at = len(entries)
		}
		if at < 0 {
			return fmt.Errorf("the first event is of a change that nobody made: %s", text(got[0]))
		}
		if at > 0 && entries[at-1].event.GetDelete() == nil && !merges {
			return fmt.Errorf("absent from the snapshot, yet the first event is of change %d of %d, and the one before was no deletion", at+1, len(entries))
		}
	}
	if at < before {
		return fmt.Errorf("the watch begins at change %d although %d were made before it was opened", at, before)
	}
	if inSnapshot && at > after+1 {
		return fmt.Errorf("the snapshot shows change %d although only %d were made when WatchList returned", at, after)
	}
	for i, ev := range got {
		if at == len(entries) {
			return fmt.Errorf("event %d comes after the last change: %s", i, text(ev))
		}
		for merges && at < len(entries)-1 && !proto.Equal(ev, entries[at].event) {
			at++
		}
		if !proto.Equal(ev, entries[at].event) {
			return fmt.Errorf("event %d of %d should be change %d of %d:\n got %s\nwant %s", i, len(got), at+1, len(entries), text(ev), text(entries[at].event))
		}
		at++
	}
	if at < len(entries) {
		return fmt.Errorf("the watch ends after change %d of %d", at, len(entries))
	}
	return nil
}
